package world

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// awaitsBackoff reports whether the workload may not be queued yet.
func (k *kueueControl) awaitsBackoff(wl *kueue.Workload, key types.NamespacedName) bool {
	state := wl.Status.RequeueState
	if state == nil || state.RequeueAt == nil {
		return false
	}
	if at := state.RequeueAt.Time; at.After(k.loop().Now()) {
		k.lookAt(key, at)
		return true
	}
	k.workloads.update(key, func(wl *kueue.Workload) bool { wl.Status.RequeueState.RequeueAt = nil; return true })
	return true
}

// requeue lets an evicted workload queue again.
func (k *kueueControl) requeue(wl *kueue.Workload, key types.NamespacedName) bool {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadRequeued)
	if c == nil || c.Status != metav1.ConditionFalse {
		return false
	}
	reason := "BackoffFinished"
	if c.Reason == kueue.WorkloadDeactivated {
		reason = "Reactivated"
	}
	return k.workloads.update(key, func(wl *kueue.Workload) bool {
		return k.condition(wl, kueue.WorkloadRequeued, true, reason, "")
	})
}

// checkTimes evicts workloads whose pods are not ready in time, and ends those that run for too long.
func (k *kueueControl) checkTimes(wl *kueue.Workload, key types.NamespacedName) {
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted == nil || admitted.Status != metav1.ConditionTrue {
		return
	}
	now := k.loop().Now()
	ready := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	if k.podsReadyTimeout > 0 && ready != nil && ready.Status != metav1.ConditionTrue {
		since := admitted.LastTransitionTime.Time
		if ready.LastTransitionTime.After(since) {
			since = ready.LastTransitionTime.Time
		}
		if at := since.Add(k.podsReadyTimeout); at.After(now) {
			k.lookAt(key, at)
		} else {
			k.evict(key, kueue.WorkloadEvictedByPodsReadyTimeout, "Exceeded the PodsReady timeout", func(wl *kueue.Workload) {
				n := int32(1)
				if s := wl.Status.RequeueState; s != nil && s.Count != nil {
					n += *s.Count
				}
				at := metav1.NewTime(now.Add(min(time.Minute<<min(n-1, 10), time.Hour)).Truncate(time.Second))
				wl.Status.RequeueState = &kueue.RequeueState{Count: &n, RequeueAt: &at}
			})
			return
		}
	}
	if limit := wl.Spec.MaximumExecutionTimeSeconds; limit != nil {
		used := time.Duration(0)
		if past := wl.Status.AccumulatedPastExecutionTimeSeconds; past != nil {
			used = time.Duration(*past) * time.Second
		}
		if at := admitted.LastTransitionTime.Add(time.Duration(*limit)*time.Second - used); at.After(now) {
			k.lookAt(key, at)
		} else {
			k.workloads.update(key, func(wl *kueue.Workload) bool {
				return k.condition(wl, kueue.WorkloadDeactivationTarget, true, kueue.WorkloadMaximumExecutionTimeExceeded, "exceeding the maximum execution time")
			})
		}
	}
}

// evict begins an eviction: everything of the admission is reset at once, but the quota.
func (k *kueueControl) evict(key types.NamespacedName, reason, message string, prepare func(*kueue.Workload)) {
	evicted := k.workloads.update(key, func(wl *kueue.Workload) bool {
		if kueuestate.IsEvicted(wl) {
			return false
		}
		if prepare != nil {
			prepare(wl)
		}
		k.condition(wl, kueue.WorkloadEvicted, true, reason, message)
		wl.Status.ClusterName, wl.Status.NominatedClusterNames = nil, nil
		for i := range wl.Status.AdmissionChecks {
			c := &wl.Status.AdmissionChecks[i]
			if c.State == kueue.CheckStatePending {
				continue
			}
			next := kueue.AdmissionCheckState{Name: c.Name, State: kueue.CheckStatePending, LastTransitionTime: k.stamp(),
				Message: "Reset to Pending after eviction. Previously: " + string(c.State), RequeueAfterSeconds: c.RequeueAfterSeconds}
			if c.State == kueue.CheckStateRetry {
				n := int32(1)
				if c.RetryCount != nil {
					n += *c.RetryCount
				}
				next.RetryCount = &n
			}
			*c = next
		}
		countEviction(wl, reason)
		return true
	})
	if evicted {
		k.world.note("%s evicts %s: %s", k.name, key.Name, reason)
	}
}

func countEviction(wl *kueue.Workload, reason string) {
	if wl.Status.SchedulingStats == nil {
		wl.Status.SchedulingStats = &kueue.SchedulingStats{}
	}
	list := wl.Status.SchedulingStats.Evictions
	if i := slices.IndexFunc(list, func(e kueue.WorkloadSchedulingStatsEviction) bool { return e.Reason == reason }); i >= 0 {
		list[i].Count++
		return
	}
	wl.Status.SchedulingStats.Evictions = append(list, kueue.WorkloadSchedulingStatsEviction{Reason: reason, Count: 1})
}

// loseQuota removes the reservation. Checks and nominations stay as they are.
func (k *kueueControl) loseQuota(wl *kueue.Workload, reason string) bool {
	if wl.Status.Admission == nil {
		return false
	}
	wl.Status.Admission = nil
	k.condition(wl, kueue.WorkloadQuotaReserved, false, reason, "")
	if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil && admitted.Status == metav1.ConditionTrue {
		past := int32(k.loop().Now().Sub(admitted.LastTransitionTime.Time) / time.Second)
		if before := wl.Status.AccumulatedPastExecutionTimeSeconds; before != nil {
			past += *before
		}
		wl.Status.AccumulatedPastExecutionTimeSeconds = &past
		k.condition(wl, kueue.WorkloadAdmitted, false, "NoReservation", "The workload has no reservation")
	}
	return true
}
