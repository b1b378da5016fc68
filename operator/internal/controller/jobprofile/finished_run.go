package jobprofile

import (
	"context"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// finishedRun is what the queries and the profile need to know about a finished Workload.
type finishedRun struct {
	// gate with the section profiles.
	gate *v1alpha1.PlacementGate
	uid  string
	// namespace, ownerKind and ownerName identify the pods on the cluster.
	namespace, ownerKind, ownerName string
	cluster                         string
	end                             time.Time
	// duration is the time since the last admission.
	duration time.Duration
	// isPart is true if an eviction ended an earlier attempt: the duration is not that of the whole job.
	isPart bool
}

// finishedRunOf returns the run of a Workload. It is nil for a trial run, if no gate has the section profiles, or if
// the cluster, the owner of the pods or the times are not known. Of an elastic job that was resized, only
// the last slice finishes with success, and it began with the last resize.
func (r *Reconciler) finishedRunOf(ctx context.Context, wl *kueue.Workload, finished *metav1.Condition) (*finishedRun, error) {
	if isTrial(wl) {
		return nil, nil
	}
	gate, checks, err := r.gateOf(ctx, wl)
	if err != nil || gate == nil {
		return nil, err
	}
	f := &finishedRun{gate: gate, uid: string(wl.UID), namespace: wl.Namespace, cluster: checks.PlacedCluster(wl)}
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	owner := kueuestate.JobOf(wl)
	if kueuestate.ReplacedSlice(wl) != "" || f.cluster == "" || owner == nil || owner.Name == "" || admitted == nil || admitted.Status != metav1.ConditionTrue || finished.LastTransitionTime.Before(&admitted.LastTransitionTime) {
		r.metrics.count(resultUnknownRun)
		return nil, nil
	}
	f.ownerKind, f.ownerName = owner.Kind, owner.Name
	f.end = finished.LastTransitionTime.Time
	f.duration, f.isPart = f.end.Sub(admitted.LastTransitionTime.Time), kueuestate.WasAdmitted(wl)
	return f, nil
}

// isTrial reports whether the Workload is that of a copy, which the controller of trials measures.
func isTrial(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Spec.PodSets, func(set kueue.PodSet) bool { return set.Template.Labels[v1alpha1.TrialOfLabel] != "" })
}

// gateOf returns the first gate of the Workload, by the name of its check, that has the section
// profiles, and the Workload's checks.
func (r *Reconciler) gateOf(ctx context.Context, wl *kueue.Workload) (*v1alpha1.PlacementGate, kueuestate.Checks, error) {
	find := func(name string) (*kueue.AdmissionCheck, error) { return hubstate.AdmissionCheck(ctx, r.client, name) }
	checks, err := kueuestate.ChecksOf(wl, find)
	if err != nil {
		return nil, checks, err
	}
	for _, check := range checks.Own {
		candidate := &v1alpha1.PlacementGate{}
		found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Name: checks.Gates[check]}, candidate)
		if err != nil {
			return nil, checks, err
		}
		if found && candidate.Spec.Profiles != nil {
			return candidate, checks, nil
		}
	}
	return nil, checks, nil
}
