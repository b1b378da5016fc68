package jobprofile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/profile"
)

// findProfile returns the profile of a key, or an empty one with its name.
func (r *Reconciler) findProfile(ctx context.Context, namespace string, key profile.Key) (*v1alpha1.JobProfile, bool, error) {
	p := &v1alpha1.JobProfile{}
	found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Namespace: namespace, Name: key.Name}, p)
	if !found {
		p = &v1alpha1.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Name}}
	}
	return p, found, err
}

// write adds the run to the profile, which it creates if necessary. It returns a conflict if
// the profile changed since it was read.
func (r *Reconciler) write(ctx context.Context, p *v1alpha1.JobProfile, exists bool, key profile.Key, run profile.Run, f *finishedRun) error {
	if !exists {
		if err := r.makeRoom(ctx, p.Namespace, f.gate.Spec.Profiles); err != nil {
			return err
		}
		if err := r.client.Create(ctx, p); err != nil {
			return err
		}
	}
	before := p.DeepCopy()
	profile.Add(&p.Status, key, run, time.Duration(cmp.Or(f.gate.Spec.Profiles.HalfLifeHours, 720))*time.Hour)
	return r.client.Status().Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// maxProfiles returns how many profiles a namespace may have: the largest number of all gates.
// Jobs of a namespace can have several gates, and with a number of its own, the gate with the
// smallest one would delete the profiles of the others.
func (r *Reconciler) maxProfiles(ctx context.Context, own *v1alpha1.GateProfiles) (int, error) {
	gates := &v1alpha1.PlacementGateList{}
	if err := r.client.List(ctx, gates); err != nil {
		return 0, fmt.Errorf("list PlacementGates: %w", err)
	}
	limit := cmp.Or(own.MaxPerNamespace, 100)
	for i := range gates.Items {
		if profiles := gates.Items[i].Spec.Profiles; profiles != nil {
			limit = max(limit, cmp.Or(profiles.MaxPerNamespace, 100))
		}
	}
	return int(limit), nil
}

// makeRoom deletes the profiles of a namespace whose last runs are the oldest, so that one
// more does not exceed the limit. own is the section of the run's gate.
func (r *Reconciler) makeRoom(ctx context.Context, namespace string, own *v1alpha1.GateProfiles) error {
	limit, err := r.maxProfiles(ctx, own)
	if err != nil {
		return err
	}
	list := &v1alpha1.JobProfileList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list JobProfiles: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.JobProfile) int { return lastUse(&a).Compare(lastUse(&b)) })
	for i := range max(0, len(list.Items)+1-limit) {
		old := &list.Items[i]
		err := r.client.Delete(ctx, old, client.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		log.FromContext(ctx).Info("A JobProfile was deleted, because the namespace has too many", "profile", old.Name, "limit", limit)
	}
	return nil
}

// lastUse returns the time of the last run. A profile without one counts from its creation.
func lastUse(p *v1alpha1.JobProfile) time.Time {
	if p.Status.LastRunTime == nil {
		return p.CreationTimestamp.Time
	}
	return p.Status.LastRunTime.Time
}
