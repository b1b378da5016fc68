package jobusage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// Add adds a run to a profile, which it creates if it was not read. It returns a conflict, or that
// the profile exists already, if the profile changed since it was read.
func Add(ctx context.Context, c client.Client, p *v1alpha1.JobProfile, key profile.Key, run profile.Run, spec *v1alpha1.GateProfiles) error {
	if p.ResourceVersion == "" {
		if err := makeRoom(ctx, c, p.Namespace, spec); err != nil {
			return err
		}
		if err := c.Create(ctx, p); err != nil {
			return err
		}
	}
	before := p.DeepCopy()
	profile.Add(&p.Status, key, run, time.Duration(cmp.Or(spec.HalfLifeHours, 720))*time.Hour)
	return c.Status().Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// maxProfiles returns how many profiles a namespace may have: the largest number of all gates and
// TrialPolicies. Jobs of a namespace can have several of them, and with a number of its own, the one
// with the smallest number would delete the profiles of the others.
func maxProfiles(ctx context.Context, c client.Client, own *v1alpha1.GateProfiles) (int, error) {
	gates, policies := &v1alpha1.PlacementGateList{}, &v1alpha1.TrialPolicyList{}
	if err := errors.Join(c.List(ctx, gates), c.List(ctx, policies)); err != nil {
		return 0, fmt.Errorf("list PlacementGates and TrialPolicies: %w", err)
	}
	limit := cmp.Or(own.MaxPerNamespace, 100)
	for i := range gates.Items {
		if profiles := gates.Items[i].Spec.Profiles; profiles != nil {
			limit = max(limit, cmp.Or(profiles.MaxPerNamespace, 100))
		}
	}
	for i := range policies.Items {
		limit = max(limit, cmp.Or(policies.Items[i].Spec.Profiles.MaxPerNamespace, 100))
	}
	return int(limit), nil
}

// makeRoom deletes the profiles of a namespace whose last runs are the oldest, so that one
// more does not exceed the limit. own are the settings for the run.
func makeRoom(ctx context.Context, c client.Client, namespace string, own *v1alpha1.GateProfiles) error {
	limit, err := maxProfiles(ctx, c, own)
	if err != nil {
		return err
	}
	list := &v1alpha1.JobProfileList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list JobProfiles: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.JobProfile) int { return lastUse(&a).Compare(lastUse(&b)) })
	for i := range max(0, len(list.Items)+1-limit) {
		old := &list.Items[i]
		err := c.Delete(ctx, old, client.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion})
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
