package kueuestate

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// evicted returns a workload that Kueue began to evict at t0. Its job counts as active on the hub
// until its pods have ended.
func evicted() *kueue.Workload {
	wl := reserved()
	setCondition(kueue.WorkloadEvicted)(wl)
	ownedBy("ray.io/v1", "RayJob")(wl)
	return wl
}

func ownedBy(apiVersion, kind string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "job", UID: "job"}}
	}
}

// podGraces sets the grace periods of pod sets in seconds; -1 leaves it out.
func podGraces(seconds ...int64) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Spec.PodSets = nil
		for _, n := range seconds {
			set := kueue.PodSet{Template: corev1.PodTemplateSpec{}}
			if n >= 0 {
				set.Template.Spec.TerminationGracePeriodSeconds = &n
			}
			wl.Spec.PodSets = append(wl.Spec.PodSets, set)
		}
	}
}

func inactive(wl *kueue.Workload) { active := false; wl.Spec.Active = &active }

func inOrder(changes ...func(*kueue.Workload)) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		for _, change := range changes {
			change(wl)
		}
	}
}

func TestIsEvictionStuck(t *testing.T) {
	const minute = time.Minute
	unchanged := func(*kueue.Workload) {}
	for _, tc := range []struct {
		name      string
		change    func(*kueue.Workload)
		lag       time.Duration
		seconds   int
		stuck     bool
		remaining time.Duration
	}{
		{"inactive, too recent", inOrder(inactive, podGraces(60)), minute, 4, false, time.Second},
		{"inactive: nothing updates the job on the hub", inOrder(inactive, podGraces(60)), minute, 5, true, 0},
		{"pods without a grace period have the default", podGraces(-1), 0, 34, false, time.Second},
		{"pods with the default must have ended", podGraces(-1), 0, 35, true, 0},
		{"the largest grace period counts", podGraces(0, 90, 10), 0, 94, false, time.Second},
		{"the largest grace period has passed", podGraces(0, 90, 10), 0, 95, true, 0},
		{"pods that need no time", podGraces(0), 0, 5, true, 0},
		{"a grace period of a day counts for ten minutes", podGraces(86400), 0, 605, true, 0},
		{"a grace period of centuries", podGraces(1 << 62), 0, 604, false, time.Second},
		{"MultiKueue is late", podGraces(30), 20 * time.Second, 54, false, time.Second},
		{"MultiKueue had its time, too", podGraces(30), 20 * time.Second, 55, true, 0},
		{"Job: its status leaves terminating pods out", inOrder(ownedBy("batch/v1", "Job"), podGraces(90)), 0, 5, true, 0},
		{"Job, and MultiKueue is late", inOrder(ownedBy("batch/v1", "Job"), podGraces(90)), minute, 64, false, time.Second},
		{"JobSet", inOrder(ownedBy("jobset.x-k8s.io/v1alpha2", "JobSet"), podGraces(90)), 0, 5, true, 0},
		{"pod group: pods without a node get no time", inOrder(ownedBy("v1", "Pod"), podGraces(90)), 0, 5, true, 0},
		{"unknown kind", inOrder(ownedBy("example.com/v1", "Job"), podGraces(90)), 0, 94, false, time.Second},
		{"no owner", inOrder(func(wl *kueue.Workload) { wl.OwnerReferences = nil }, podGraces(90)), 0, 94, false, time.Second},
		{"nominated, but no cluster admits it", func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"cluster1"} }, 0, 6, true, 0},
		{"admitted by a cluster", clusterName("cluster1"), 0, 600, false, 0},
		{"the eviction began after the check was reset", func(wl *kueue.Workload) { wl.Status.Conditions[1].LastTransitionTime = after(10) }, 0, 14, false, time.Second},
		{"no pod sets", unchanged, 0, 5, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := evicted()
			tc.change(wl)
			if stuck, remaining := IsEvictionStuck(wl, "multikueue", tc.lag, t0.Add(time.Duration(tc.seconds)*time.Second)); stuck != tc.stuck || remaining != tc.remaining {
				t.Errorf("got %t with %s left, want %t with %s left", stuck, remaining, tc.stuck, tc.remaining)
			}
		})
	}
}

// An eviction of an active workload never counts as stuck while its pods, or MultiKueue, may still
// take the time that they were given.
func TestEvictionIsNotStuckWhilePodsEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		seconds := []int64{rng.Int64N(1200) - 1, rng.Int64N(120) - 1}
		wl, lag, age := evicted(), time.Duration(rng.Int64N(300))*time.Second, time.Duration(rng.Int64N(1500))*time.Second
		podGraces(seconds...)(wl)
		longest := time.Duration(0)
		for _, n := range seconds {
			if n < 0 {
				n = 30
			}
			longest = max(longest, min(time.Duration(n)*time.Second, timing.MaxPodGrace))
		}
		stuck, remaining := IsEvictionStuck(wl, "multikueue", lag, t0.Add(age))
		if stuck && age < longest+lag+timing.EvictionGrace || !stuck && age+remaining != longest+lag+timing.EvictionGrace {
			t.Fatalf("grace %v, lag %s, after %s: stuck %t, %s left", seconds, lag, age, stuck, remaining)
		}
	}
}

func TestStuckEvictionAcceptsNomination(t *testing.T) {
	wl := evicted()
	podGraces(30)(wl)
	at := t0.Add(36 * time.Second)
	if AcceptsNomination(wl, "multikueue", 0, at) {
		t.Error("Kueue ignores nominations while another check is Pending")
	}
	wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	if !AcceptsNomination(wl, "multikueue", 0, at) {
		t.Error("a stuck eviction must accept a nomination")
	}
	if AcceptsNomination(wl, "multikueue", 2*time.Second, at) {
		t.Error("the eviction is not stuck while MultiKueue is late")
	}
}

func TestEvictionTimes(t *testing.T) {
	withoutQuotaSince := func(seconds int) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			quota := &wl.Status.Conditions[0]
			quota.Status, quota.LastTransitionTime = metav1.ConditionFalse, after(seconds)
		}
	}
	isJob := ownedBy("batch/v1", "Job")
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   time.Duration
		ok     bool
	}{
		{"complete", inOrder(isJob, withoutQuotaSince(20)), 20 * time.Second, true},
		{"not complete", isJob, 0, false},
		{"not evicted", func(wl *kueue.Workload) { *wl = *reserved(); inOrder(isJob, withoutQuotaSince(20))(wl) }, 0, false},
		{"by the worker", inOrder(isJob, withoutQuotaSince(20), func(wl *kueue.Workload) {
			wl.Status.Conditions[1].Reason = kueue.WorkloadEvictedByAdmissionCheck
		}), 0, false},
		{"a kind that waits for its pods", withoutQuotaSince(20), 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := evicted()
			tc.change(wl)
			began, complete, ok := EvictionTimes(wl)
			if took := complete.Sub(began); took != tc.want || ok != tc.ok {
				t.Errorf("took %s (%t), want %s (%t)", took, ok, tc.want, tc.ok)
			}
		})
	}
}
