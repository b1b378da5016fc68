package reclaim

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Demand is what workloads wait for, by group.
type Demand struct {
	// MinWait is the time for which a workload must have waited. Each admission waits for seconds.
	MinWait time.Duration
	// RoomChecks are the admission checks of gates and of MultiKueue, which wait for a cluster with room.
	// A workload that waits for another check, such as that of a trial, needs no devices yet.
	RoomChecks []string
	// waiting is the highest priority of the workloads that wait for a resource.
	waiting map[demandKey]int32
	// returning is a workload of the group whose reclaim is not complete.
	returning map[string]string
	// queued is a workload that waits for quota of a resource.
	queued map[demandKey]string
}

type demandKey struct{ group, resource string }

// AddReturning adds a workload of a group to which Kueue gives no quota, because its queue is stopped.
// It waits for nothing, but its reclaim may not be complete.
func (d *Demand) AddReturning(group string, wl *kueue.Workload) {
	record, err := dispatch.Decode(wl.Annotations)
	if err != nil || !isReturning(wl, &record) {
		return
	}
	if d.returning == nil {
		d.returning = map[string]string{}
	}
	d.returning[group] = wl.Namespace + "/" + wl.Name
}

// Add adds a workload of a group.
func (d *Demand) Add(group string, wl *kueue.Workload, now time.Time) {
	d.AddReturning(group, wl)
	record, err := dispatch.Decode(wl.Annotations)
	since, ok := d.waitsSince(wl)
	if ok && !kueuestate.HoldsQuota(wl) || err == nil && yields(wl, &record) {
		d.addQueued(group, wl)
	}
	if !ok || now.Sub(since) < d.MinWait || err == nil && waitsAfterReclaim(wl, &record) {
		return
	}
	if d.waiting == nil {
		d.waiting = map[demandKey]int32{}
	}
	priority := priorityOf(wl)
	for _, resource := range shape.ExtendedResources(wl) {
		key := demandKey{group, resource}
		if highest, ok := d.waiting[key]; !ok || highest < priority {
			d.waiting[key] = priority
		}
	}
}

func (d *Demand) addQueued(group string, wl *kueue.Workload) {
	if d.queued == nil {
		d.queued = map[demandKey]string{}
	}
	for _, resource := range shape.ExtendedResources(wl) {
		d.queued[demandKey{group, resource}] = wl.Namespace + "/" + wl.Name
	}
}

// Apply sets what the demand means for a candidate.
func (d *Demand) Apply(c *Candidate) {
	priority, ok := d.waiting[demandKey{c.Group, c.Resource}]
	c.OthersWait, c.Returning = ok && priority >= c.Priority, d.returning[c.Group]
	c.QuotaWantedBy = d.queued[demandKey{c.Group, c.Resource}]
}

// waitsSince returns since when a workload waits for quota, or with quota for a cluster with room. It
// returns false if the workload does not wait, or waits for another check: the devices that a reclaim
// frees would not help it, and each round would return the next workload. A workload that is being
// evicted holds quota and does not wait.
func (d *Demand) waitsSince(wl *kueue.Workload) (time.Time, bool) {
	waitsForRoom := kueuestate.AcceptsCheckUpdate(wl) && !kueuestate.IsAdmitted(wl) && kueuestate.OtherChecksReady(wl, d.RoomChecks...)
	if !waitsForRoom && !kueuestate.WaitsForQuota(wl) {
		return time.Time{}, false
	}
	since := wl.CreationTimestamp.Time
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadRequeued} {
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kind); c != nil && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	for i := range wl.Status.AdmissionChecks {
		if c := &wl.Status.AdmissionChecks[i]; c.LastTransitionTime.After(since) && !slices.Contains(d.RoomChecks, string(c.Name)) {
			since = c.LastTransitionTime.Time
		}
	}
	return since, true
}

// yields reports whether the gate returned the quota of a workload that waits for it again after a pause.
func yields(wl *kueue.Workload, record *dispatch.Record) bool {
	return wl.DeletionTimestamp.IsZero() && !kueuestate.IsFinished(wl) && !kueuestate.IsActive(wl) && !record.SleepsUntil.IsZero() && !record.IsReclaimed()
}

// isReturning reports whether the reclaim of a workload is not complete: the workload is not active
// again, or holds quota until its eviction completes.
func isReturning(wl *kueue.Workload, record *dispatch.Record) bool {
	if !wl.DeletionTimestamp.IsZero() || kueuestate.IsFinished(wl) || record.Reclaimed == nil {
		return false
	}
	return record.IsReclaimed() && !kueuestate.IsActive(wl) || kueuestate.HoldsQuota(wl) && kueuestate.IsEvicted(wl)
}

// WaitsAfterReclaim reports whether a workload waits because it was reclaimed.
func WaitsAfterReclaim(wl *kueue.Workload) bool {
	record, err := dispatch.Decode(wl.Annotations)
	return err == nil && waitsAfterReclaim(wl, &record)
}

// waitsAfterReclaim reports whether a workload waits because it was reclaimed. It must not count as
// waiting, or one reclaim would cause the next. A reclaimed workload counts again if it is evicted for
// a reason that only running workloads have.
func waitsAfterReclaim(wl *kueue.Workload, record *dispatch.Record) bool {
	if record.Reclaimed == nil {
		return false
	}
	if !kueuestate.IsEvicted(wl) {
		return true
	}
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	ranAgain := slices.Contains(evictionsOfRunning, evicted.Reason) && evicted.LastTransitionTime.After(record.Reclaimed.At)
	return !ranAgain
}

var evictionsOfRunning = []string{kueue.WorkloadEvictedByPreemption, kueue.WorkloadEvictedByPodsReadyTimeout}

func priorityOf(wl *kueue.Workload) int32 {
	if wl.Spec.Priority == nil {
		return 0
	}
	return *wl.Spec.Priority
}
