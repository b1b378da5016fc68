package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// observeReplacedSlice reads on which clusters copies of the slice that the workload replaces, and of the
// workload itself, may have room. Kueue copies the cluster of the old slice to the new one, but the old
// slice may have none:
//  1. An elastic job is resized while no cluster has admitted its slice.
//  2. The new slice reserves quota, and Kueue finishes the old one as replaced.
//  3. MultiKueue leaves the copies of a replaced slice on the workers. A copy keeps its quota until
//     the same worker admits the new slice, which replaces it there.
//  4. The old slice may have been evicted while the new one waited for quota. Kueue finishes it as
//     replaced, with its quota, so that its copies also stay. An admitted one runs on.
//  5. The new slice is evicted. MultiKueue also leaves the copies of a slice without quota that replaces
//     another one. Each may be admitted while the slice waits for quota.
//
// If a cluster has admitted the new slice, it replaced the old one there, and the eviction ended it. Then
// only the clusters of a later attempt count.
func (r *Reconciler) observeReplacedSlice(ctx context.Context, s *lifecycle.Situation) error {
	switch {
	case kueuestate.ReplacedSlice(s.Workload) == "" || s.Workload.Status.ClusterName != nil:
		return nil
	case s.Dispatch() == lifecycle.Local:
		return r.observeRunningSlice(ctx, s)
	}
	if kueuestate.WasAdmitted(s.Workload) {
		if !s.History.Copies.Recorded {
			s.Job.SliceOn, s.Job.SliceSeenOn = s.History.Copies.Clusters, s.History.Copies.Clusters
		}
		return nil
	}
	recorded, err := r.observeClustersOfSlices(ctx, s)
	if err != nil {
		return err
	}
	s.Job.SliceSeenOn = appendNew(s.Job.SliceSeenOn, s.History.Copies.Clusters)
	s.Job.SliceOn = appendNew(appendNew(slices.Clone(s.Job.SliceSeenOn), recorded), s.Record.Sent())
	return nil
}

// observeClustersOfSlices reads the clusters of the replaced slice, or of the latest one before it that
// was sent somewhere. It returns those that only a record names.
func (r *Reconciler) observeClustersOfSlices(ctx context.Context, s *lifecycle.Situation) (recorded []string, err error) {
	slice := s.Workload
	for range maxReplacedSlices {
		old, err := r.replacedSlice(ctx, slice)
		if err != nil || old == nil {
			return nil, err
		}
		s.Job.SliceSeenOn, recorded = r.clustersOfSlice(old, s.Now)
		if len(s.Job.SliceSeenOn)+len(recorded) > 0 || kueuestate.WasAdmitted(old) && !isEndingWithQuota(old) {
			return recorded, nil
		}
		slice = old
	}
	return nil, nil
}

// replacedSlice returns the slice that a workload replaces. It is nil if there is none. Users can write the
// annotation that names it, so that the rest must be as Kueue makes it.
func (r *Reconciler) replacedSlice(ctx context.Context, wl *kueue.Workload) (*kueue.Workload, error) {
	name := kueuestate.ReplacedSlice(wl)
	if name == "" {
		return nil, nil
	}
	old := &kueue.Workload{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: name}, old)
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the slice that Workload %s/%s replaces: %w", wl.Namespace, wl.Name, err)
	}
	if !isReplaceable(old, wl) {
		return nil, nil
	}
	return old, nil
}

// isReplaceable reports whether the second workload may be the slice that replaces the first: both are
// slices of one job, and Kueue had not finished the first when it created the second.
func isReplaceable(old, wl *kueue.Workload) bool {
	finished := apimeta.FindStatusCondition(old.Status.Conditions, kueue.WorkloadFinished)
	if finished != nil && finished.Status == metav1.ConditionTrue &&
		(finished.Reason != kueue.WorkloadSliceReplaced || finished.LastTransitionTime.Add(timing.MaxClockSkew).Before(wl.CreationTimestamp.Time)) {
		return false
	}
	job, jobOfOld := metav1.GetControllerOf(wl), metav1.GetControllerOf(old)
	if job == nil || jobOfOld == nil {
		return job == jobOfOld
	}
	return job.UID == jobOfOld.UID
}

// clustersOfSlice returns the clusters that may hold a copy of a replaced slice: those that its status
// names or that this process saw, and those that only its record names.
func (r *Reconciler) clustersOfSlice(old *kueue.Workload, now time.Time) (seen, recorded []string) {
	if cluster := kueuestate.ClusterOf(old); cluster != "" {
		return []string{cluster}, nil
	}
	// A record that does not parse was not written by the operator and names no cluster.
	record, _ := dispatch.Decode(old.Annotations)
	seen = slices.Clone(old.Status.NominatedClusterNames)
	if isEndingWithQuota(old) {
		const endedByWorker = false
		seen = appendNew(seen, r.engine.History(old.UID).WithoutQuota(endedByWorker, now).Copies.Clusters)
		recorded = record.Nominated
	}
	// An eviction removes no copies of a slice that replaced another one, unless a cluster had admitted it.
	if kueuestate.ReplacedSlice(old) != "" && !kueuestate.WasAdmitted(old) && !kueuestate.IsAdmitted(old) {
		recorded = appendNew(recorded, record.Sent())
	}
	return seen, recorded
}

// isEndingWithQuota reports whether a slice was replaced while Kueue evicted it. Eviction clears the
// clusters of its status. MultiKueue removes copies of a slice that has lost its quota, but none of a
// replaced one.
func isEndingWithQuota(old *kueue.Workload) bool {
	return kueuestate.IsEvicted(old) && old.Status.Admission != nil
}

// appendNew appends the values that list does not have.
func appendNew(list, values []string) []string {
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
