package reclaim

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
)

// pending is a workload like that of running, without quota, created an hour before noon.
func pending(change ...func(*kueue.Workload)) *kueue.Workload {
	return running(append([]func(*kueue.Workload){func(wl *kueue.Workload) {
		wl.CreationTimestamp, wl.Status = metav1.NewTime(noon.Add(-time.Hour)), kueue.WorkloadStatus{}
	}}, change...)...)
}

func withQuota(after time.Duration) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "research"}
		condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, after)(wl)
	}
}

func withChecks(states ...kueue.AdmissionCheckState) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Status.AdmissionChecks = states }
}

func ready(check kueue.AdmissionCheckReference) kueue.AdmissionCheckState {
	return kueue.AdmissionCheckState{Name: check, State: kueue.CheckStateReady}
}

func readyAfter(check kueue.AdmissionCheckReference, after time.Duration) kueue.AdmissionCheckState {
	state := ready(check)
	state.LastTransitionTime = metav1.NewTime(noon.Add(after))
	return state
}

func awaited(check kueue.AdmissionCheckReference) kueue.AdmissionCheckState {
	return kueue.AdmissionCheckState{Name: check, State: kueue.CheckStatePending}
}

func created(after time.Duration) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.CreationTimestamp = metav1.NewTime(noon.Add(after)) }
}

func evictedFor(reason string, after time.Duration) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		condition(kueue.WorkloadEvicted, metav1.ConditionTrue, after)(wl)
		wl.Status.Conditions[len(wl.Status.Conditions)-1].Reason = reason
	}
}

func inactive(wl *kueue.Workload) { wl.Spec.Active = new(false) }

// onHold is the state of a workload of a StatefulSet without replicas.
func onHold(wl *kueue.Workload) {
	condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, -time.Hour)(wl)
	wl.Status.Conditions[len(wl.Status.Conditions)-1].Reason = kueue.WorkloadOnHold
}

// admissionGated closes an admission gate of Kueue.
func admissionGated(wl *kueue.Workload) {
	annotation("kueue.x-k8s.io/admission-gated-by", "example.com/budget")(wl)
}

func withPriority(p int32) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Spec.Priority = new(p) }
}

// reclaimed is the record of a reclaim half an hour before noon, in its pause or after it.
func reclaimed(pauses bool) func(*kueue.Workload) {
	record := dispatch.Record{}.Reclaim("idle-gpus", "idle", 0, noon.Add(-30*time.Minute))
	if !pauses {
		record = record.Woken()
	}
	return annotation(v1alpha1.DispatchAnnotation, record.Encode())
}

// A workload counts as waiting if it waits for the victim's devices, is not less important than the
// victim, and has waited for a while.
func TestWhoWaits(t *testing.T) {
	for _, tc := range []struct {
		name string
		wl   *kueue.Workload
		want bool
	}{
		{"for quota", pending(), true},
		{"for quota, after an attempt of Kueue", pending(condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, -time.Minute)), true},
		{"with quota, before its checks", pending(withQuota(-time.Minute)), true},
		{"for its gate", pending(withQuota(-time.Minute), withChecks(ready("provisioning"), awaited("plimsoll"), awaited("multikueue"))), true},
		{"for MultiKueue", pending(withQuota(-time.Minute), withChecks(ready("plimsoll"), awaited("multikueue"))), true},
		{"for another check", pending(withQuota(-time.Hour), withChecks(ready("plimsoll"), awaited("multikueue"), awaited("provisioning"))), false},
		{"for its gate, since another check became Ready just now", pending(withQuota(-time.Hour), withChecks(awaited("plimsoll"), readyAfter("trial", -59*time.Second))), false},
		{"for its gate, since another check became Ready", pending(withQuota(-time.Hour), withChecks(awaited("plimsoll"), readyAfter("trial", -time.Minute))), true},
		{"for MultiKueue, since its gate became Ready just now", pending(withQuota(-time.Hour), withChecks(readyAfter("plimsoll", -time.Second), awaited("multikueue"))), true},
		{"for another check that retries", pending(withQuota(-time.Hour), withChecks(awaited("plimsoll"), kueue.AdmissionCheckState{Name: "provisioning", State: kueue.CheckStateRetry})), false},
		{"created just now", pending(created(-59 * time.Second)), false},
		{"created in the future", pending(created(time.Hour)), false},
		{"got quota just now", pending(withQuota(-59 * time.Second)), false},
		{"lost quota just now", pending(condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, -59*time.Second)), false},
		{"activated just now", pending(condition(kueue.WorkloadRequeued, metav1.ConditionTrue, -59*time.Second)), false},
		{"admitted", pending(withQuota(-time.Hour), condition(kueue.WorkloadAdmitted, metav1.ConditionTrue, -time.Hour)), false},
		{"finished", pending(condition(kueue.WorkloadFinished, metav1.ConditionTrue, -time.Hour)), false},
		{"inactive", pending(inactive), false},
		{"being deleted", pending(func(wl *kueue.Workload) { wl.DeletionTimestamp = &metav1.Time{Time: noon} }), false},
		{"returns its quota", pending(withQuota(-time.Hour), evictedFor("Preempted", -time.Hour)), false},
		{"evicted, without quota", pending(evictedFor("Preempted", -time.Hour)), true},
		{"on hold", pending(onHold), false},
		{"with a closed admission gate", pending(admissionGated), false},
		{"without some pods of its group", pending(condition(kueue.WorkloadWaitingForReplacementPods, metav1.ConditionTrue, -time.Hour)), false},
		{"for other devices", pending(limits(map[string]string{"amd.com/gpu": "1"})), false},
		{"for CPUs", pending(limits(map[string]string{"cpu": "1"})), false},
		{"lower priority", pending(withPriority(-1)), false},
		{"higher priority", pending(withPriority(1)), true},
		{"after a reclaim", pending(reclaimed(false), evictedFor("Deactivated", -29*time.Minute)), false},
		{"after a reclaim, at its checks", pending(reclaimed(false), withQuota(-20*time.Minute)), false},
		{"after a reclaim, returned by a check", pending(reclaimed(false), evictedFor("AdmissionCheck", -20*time.Minute)), false},
		{"reclaimed, ran again and was preempted", pending(reclaimed(false), evictedFor("Preempted", -20*time.Minute)), true},
		{"preempted before it was reclaimed", pending(reclaimed(false), evictedFor("Preempted", -40*time.Minute)), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			demand := Demand{MinWait: time.Minute, RoomChecks: []string{"plimsoll", "multikueue"}}
			demand.Add("cohort x", tc.wl, noon)
			demand.Add("cohort y", pending(), noon)
			c := idleJob("a", inGroup("cohort x"), alone)
			if demand.Apply(c); c.OthersWait != tc.want || c.Returning != "" {
				t.Errorf("others wait: %t, returning %q", c.OthersWait, c.Returning)
			}
		})
	}
}

func TestHighestPriorityCounts(t *testing.T) {
	demand := Demand{MinWait: time.Minute}
	for _, p := range []int32{-5, 3, -7} {
		demand.Add("cohort x", pending(withPriority(p)), noon)
	}
	demand.Add("cohort x", pending(withPriority(100), limits(map[string]string{"amd.com/gpu": "1"})), noon)
	for p, want := range map[int32]bool{3: true, 4: false, -9: true} {
		c := idleJob("a", inGroup("cohort x"), priority(p))
		if demand.Apply(c); c.OthersWait != want {
			t.Errorf("priority %d: others wait: %t", p, c.OthersWait)
		}
	}
}

func TestWhoReturns(t *testing.T) {
	for _, tc := range []struct {
		name string
		wl   *kueue.Workload
		want bool
	}{
		{"deactivated just now", running(reclaimed(true), inactive), true},
		{"being evicted", running(reclaimed(true), inactive, evictedFor("Deactivated", 0)), true},
		{"pauses without quota", pending(reclaimed(true), inactive), true},
		{"a user activated it during the eviction", running(reclaimed(false), evictedFor("Deactivated", 0)), true},
		{"active again", pending(reclaimed(false)), false},
		{"runs again", running(reclaimed(false)), false},
		{"a user activated it during the pause", pending(reclaimed(true)), false},
		{"a user deactivated it later", pending(reclaimed(false), inactive), false},
		{"finished during its eviction", running(reclaimed(true), inactive, condition(kueue.WorkloadFinished, metav1.ConditionTrue, 0)), false},
		{"deleted during the pause", pending(reclaimed(true), inactive, func(wl *kueue.Workload) { wl.DeletionTimestamp = &metav1.Time{Time: noon} }), false},
		{"yields", pending(inactive, annotation(v1alpha1.DispatchAnnotation, dispatch.Record{}.Yielded(noon, noon).Encode())), false},
		{"preempted", running(evictedFor("Preempted", 0)), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			demand := Demand{}
			demand.Add("cohort x", tc.wl, noon)
			demand.Add("cohort z", pending(reclaimed(true), inactive), noon)
			c, other := idleJob("a", inGroup("cohort x")), idleJob("b", inGroup("cohort y"))
			demand.Apply(c)
			if demand.Apply(other); (c.Returning == "team-a/job-train") != tc.want || other.Returning != "" {
				t.Errorf("returning %q, in another group %q", c.Returning, other.Returning)
			}
		})
	}
}

// A workload that waits for quota would take that of a candidate which moves. One that has quota, or
// does not wait, would not.
func TestWhoWantsQuota(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		group  string
		want   bool
	}{
		{"waits for quota", func(*kueue.Workload) {}, "research", true},
		{"since a moment", created(-time.Second), "research", true},
		{"of a lower priority", withPriority(-1), "research", true},
		{"was reclaimed", reclaimed(false), "research", true},
		{"waits with quota", withQuota(-time.Hour), "research", false},
		{"inactive", inactive, "research", false},
		{"on hold", onHold, "research", false},
		{"with a closed admission gate", admissionGated, "research", false},
		{"pauses after a yield", func(wl *kueue.Workload) {
			inactive(wl)
			annotation(v1alpha1.DispatchAnnotation, dispatch.Record{}.Yielded(noon, noon).Encode())(wl)
		}, "research", true},
		{"finished after a yield", func(wl *kueue.Workload) {
			inactive(wl)
			annotation(v1alpha1.DispatchAnnotation, dispatch.Record{}.Yielded(noon, noon).Encode())(wl)
			condition(kueue.WorkloadFinished, metav1.ConditionTrue, 0)(wl)
		}, "research", false},
		{"another Cohort", func(*kueue.Workload) {}, "other", false},
		{"another resource", limits(map[string]string{"amd.com/gpu": "1"}), "research", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &Demand{MinWait: time.Minute}
			d.Add(tc.group, pending(tc.change), noon)
			c := &Candidate{Group: "research", Resource: "nvidia.com/gpu"}
			if d.Apply(c); (c.QuotaWantedBy != "") != tc.want {
				t.Errorf("wanted by %q", c.QuotaWantedBy)
			}
		})
	}
}
