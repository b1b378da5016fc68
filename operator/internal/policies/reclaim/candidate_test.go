package reclaim

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
)

// running is a workload of Job train with the label and 2 pods of 4 GPUs, admitted at noon.
func running(change ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job-train", UID: "uid", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}}}
	set := kueue.PodSet{Name: "main", Count: 2}
	set.Template.Labels = map[string]string{v1alpha1.ReclaimableLabel: "true"}
	set.Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}}}}
	wl.Spec.PodSets = []kueue.PodSet{set}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "research"}
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		condition(kind, metav1.ConditionTrue, 0)(wl)
	}
	for _, f := range change {
		f(wl)
	}
	return wl
}

func condition(kind string, status metav1.ConditionStatus, after time.Duration) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(noon.Add(after))})
	}
}

func annotation(key, value string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Annotations = map[string]string{key: value} }
}

func withoutLabel(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Labels = nil }

func class(ref *kueue.PriorityClassRef) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Spec.PriorityClassRef, wl.Spec.Priority = ref, new(int32(-5)) }
}

func limits(text map[string]string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		list := corev1.ResourceList{}
		for name, n := range text {
			list[corev1.ResourceName(name)] = resource.MustParse(n)
		}
		wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = list
	}
}

// Workloads that are no candidates are neither measured nor reported.
func TestWhoIsACandidate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  []func(*kueue.Workload)
		devices int64 // 0: no candidate
	}{
		{"label", nil, 8},
		{"neither label nor class", []func(*kueue.Workload){withoutLabel}, 0},
		{"label with another value", []func(*kueue.Workload){func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Labels[v1alpha1.ReclaimableLabel] = "false"
		}}, 0},
		{"class of the policy", []func(*kueue.Workload){withoutLabel, class(kueue.NewWorkloadPriorityClassRef("spot"))}, 8},
		{"another class", []func(*kueue.Workload){withoutLabel, class(kueue.NewWorkloadPriorityClassRef("production"))}, 0},
		{"class of pods with the same name", []func(*kueue.Workload){withoutLabel, class(kueue.NewPodPriorityClassRef("spot"))}, 0},
		{"finished", []func(*kueue.Workload){condition(kueue.WorkloadFinished, metav1.ConditionTrue, 0)}, 0},
		{"evicted", []func(*kueue.Workload){condition(kueue.WorkloadEvicted, metav1.ConditionTrue, 0)}, 0},
		{"evicted before", []func(*kueue.Workload){condition(kueue.WorkloadEvicted, metav1.ConditionFalse, 0)}, 8},
		{"inactive", []func(*kueue.Workload){func(wl *kueue.Workload) { wl.Spec.Active = new(false) }}, 0},
		{"being deleted", []func(*kueue.Workload){func(wl *kueue.Workload) { wl.DeletionTimestamp = &metav1.Time{Time: noon} }}, 0},
		{"waits for quota", []func(*kueue.Workload){func(wl *kueue.Workload) { wl.Status.Admission, wl.Status.Conditions = nil, nil }}, 0},
		{"waits for its checks", []func(*kueue.Workload){func(wl *kueue.Workload) { wl.Status.Conditions = wl.Status.Conditions[:1] }}, 0},
		{"no devices", []func(*kueue.Workload){limits(map[string]string{"cpu": "4"})}, 0},
		{"devices and network adapters", []func(*kueue.Workload){limits(map[string]string{"nvidia.com/gpu": "4", "rdma/hca": "4"})}, 8},
		{"shared devices", []func(*kueue.Workload){limits(map[string]string{"nvidia.com/gpu.shared": "4"})}, 0},
		{"MIG instances", []func(*kueue.Workload){limits(map[string]string{"nvidia.com/mig-1g.10gb": "1"})}, 0},
		{"shares of HAMi", []func(*kueue.Workload){limits(map[string]string{"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000"})}, 0},
		{"part of a device", []func(*kueue.Workload){limits(nil), func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Annotations = map[string]string{"gpu-fraction": "0.5"}
		}}, 0},
		{"resource claim", []func(*kueue.Workload){func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}}, 0},
		{"admitted with fewer pods", []func(*kueue.Workload){func(wl *kueue.Workload) {
			wl.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}
		}}, 4},
		{"a pod has ended", []func(*kueue.Workload){func(wl *kueue.Workload) {
			wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
		}}, 8},
		{"pods are ready", []func(*kueue.Workload){condition(kueue.WorkloadPodsReady, metav1.ConditionTrue, 0)}, 8},
		{"devices of two resources", []func(*kueue.Workload){func(wl *kueue.Workload) {
			other := wl.Spec.PodSets[0].DeepCopy()
			other.Name, other.Template.Spec.Containers[0].Resources.Limits = "other", corev1.ResourceList{"amd.com/gpu": resource.MustParse("1")}
			wl.Spec.PodSets = append(wl.Spec.PodSets, *other)
		}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, ok := NewCandidate(running(tc.change...), []string{"spot"})
			switch {
			case ok != (tc.devices > 0):
				t.Fatalf("candidate %t", ok)
			case ok && (c.Devices != tc.devices || c.Resource != "nvidia.com/gpu" || c.Queue != "research" || c.Owner != Owner{Namespace: "team-a", Kind: "Job", Name: "train"}):
				t.Errorf("got %+v, want %d devices", c, tc.devices)
			case ok && c.Protection != "":
				t.Errorf("protected: %s", c.Protection)
			}
		})
	}
}

// The status and the events of a policy name the workload, and the priority orders the reclaims.
func TestCandidateNamesItsWorkload(t *testing.T) {
	for want, change := range map[int32]func(*kueue.Workload){0: func(*kueue.Workload) {}, 7: withPriority(7)} {
		c, _ := NewCandidate(running(change), nil)
		if c.Namespace != "team-a" || c.Name != "job-train" || c.UID != "uid" || c.Priority != want {
			t.Errorf("got %+v, want priority %d", c, want)
		}
	}
}

func TestProtection(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   string
	}{
		{"elastic job", annotation("kueue.x-k8s.io/elastic-job", "true"), "elastic"},
		{"component", annotation("kueue.x-k8s.io/component-workload-index", "0"), "component"},
		{"group of pods", func(wl *kueue.Workload) {
			wl.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "a"}, {Kind: "Pod", Name: "b"}}
		}, "no single owner"},
		{"single Pod", func(wl *kueue.Workload) {
			wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "notebook", Controller: new(true)}}
		}, "single Pod"},
		{"no owner", func(wl *kueue.Workload) { wl.OwnerReferences = nil }, "no single owner"},
		{"pods are not ready", condition(kueue.WorkloadPodsReady, metav1.ConditionFalse, 0), "pods are not ready"},
		{"Kueue retries it again and again", func(wl *kueue.Workload) {
			wl.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1))}
			wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Count: 5}}}
		}, "retries"},
		{"about to be deactivated", condition(kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, 0), "about to be deactivated"},
		{"record does not parse", annotation(v1alpha1.DispatchAnnotation, "{"), "does not parse"},
		{"still returning", annotation(v1alpha1.DispatchAnnotation, `{"attempt":1,"sleepsUntil":"2026-05-01T12:00:00Z"}`), "returned to its queue before"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, ok := NewCandidate(running(tc.change), nil)
			if !ok || !strings.Contains(c.Protection, tc.want) {
				t.Errorf("candidate %t, protection %q, want %q", ok, c.Protection, tc.want)
			}
		})
	}
}

// The run counts from the admission, or from when the pods became ready if that is later.
func TestRunningSince(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change []func(*kueue.Workload)
		want   time.Duration
	}{
		{"admission", nil, 0},
		{"pods became ready later", []func(*kueue.Workload){condition(kueue.WorkloadPodsReady, metav1.ConditionTrue, 5*time.Minute)}, 5 * time.Minute},
		{"pods were ready before", []func(*kueue.Workload){condition(kueue.WorkloadPodsReady, metav1.ConditionTrue, -time.Minute)}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := NewCandidate(running(tc.change...), nil)
			if !c.RunningSince.Equal(noon.Add(tc.want)) {
				t.Errorf("running since %s", c.RunningSince)
			}
		})
	}
}

// Kubernetes gives pods 30 s to end if their template says nothing.
func TestGracePeriodWithoutOne(t *testing.T) {
	if c, _ := NewCandidate(running(), nil); c.GracePeriod != 30*time.Second {
		t.Errorf("grace period %s", c.GracePeriod)
	}
}

func TestFlavorOfDevices(t *testing.T) {
	for want, flavors := range map[string][]string{"spot": {"spot", "spot"}, "": {"spot", "reserved"}} {
		c, _ := NewCandidate(running(func(wl *kueue.Workload) {
			wl.Spec.PodSets = append(wl.Spec.PodSets, *wl.Spec.PodSets[0].DeepCopy())
			wl.Spec.PodSets[1].Name = "other"
			for i, flavor := range flavors {
				wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{Name: wl.Spec.PodSets[i].Name,
					Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": kueue.ResourceFlavorReference(flavor), "cpu": "default"}})
			}
		}), nil)
		if c.Flavor != want {
			t.Errorf("%v: flavor %q, want %q", flavors, c.Flavor, want)
		}
	}
}

func TestGracePeriodIsTheLargest(t *testing.T) {
	c, _ := NewCandidate(running(func(wl *kueue.Workload) {
		wl.Spec.PodSets = append(wl.Spec.PodSets, *wl.Spec.PodSets[0].DeepCopy())
		wl.Spec.PodSets[0].Template.Spec.TerminationGracePeriodSeconds = new(int64(120))
		wl.Spec.PodSets[1].Template.Spec.TerminationGracePeriodSeconds = new(int64(30))
	}), nil)
	if c.GracePeriod != 2*time.Minute {
		t.Errorf("grace period %s", c.GracePeriod)
	}
}

func TestDefaults(t *testing.T) {
	want := Bounds{Mode: v1alpha1.ModeEnforce, Idle: 30 * time.Minute, MinRun: 30 * time.Minute, MaxPerHour: 4}
	if got := BoundsOf(&v1alpha1.ReclaimPolicySpec{}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if f := FreshnessOf(&v1alpha1.ReclaimPolicySpec{}); f != (v1alpha1.Freshness{Query: defaultFreshnessQuery, MaxAgeSeconds: 240}) {
		t.Errorf("freshness %+v", f)
	}
	if got := IdleQueryOf(&v1alpha1.ReclaimPolicySpec{}); got != defaultIdleQuery {
		t.Errorf("query %q", got)
	}
	spec := &v1alpha1.ReclaimPolicySpec{MinRunSeconds: new(int32(0)), IdleQuery: "idle", Freshness: &v1alpha1.Freshness{Query: "age"}}
	if got := BoundsOf(spec); got.MinRun != 0 {
		t.Errorf("minRunSeconds 0 is %s", got.MinRun)
	}
	if f := FreshnessOf(spec); IdleQueryOf(spec) != "idle" || f.Query != "age" || f.MaxAgeSeconds != 120 {
		t.Errorf("queries %q, %+v", IdleQueryOf(spec), f)
	}
}

func TestSpecBeforeDefaults(t *testing.T) {
	spec := &v1alpha1.ReclaimPolicySpec{Mode: v1alpha1.ModeEnforce, IdleSeconds: 60, MinRunSeconds: new(int32(90)), MaxPerHour: 9, Freshness: &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 30}}
	want := Bounds{Mode: v1alpha1.ModeEnforce, Idle: time.Minute, MinRun: 90 * time.Second, MaxPerHour: 9}
	if got := BoundsOf(spec); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if f := FreshnessOf(spec); f != *spec.Freshness {
		t.Errorf("freshness %+v", f)
	}
}

// A candidate shows when any policy last returned it to its queue.
func TestCandidateShowsItsLastReturn(t *testing.T) {
	at := noon.Add(-time.Hour)
	record := dispatch.Record{}.Reclaim("other", "idle", 0, at).Woken()
	c, _ := NewCandidate(running(annotation(v1alpha1.DispatchAnnotation, record.Encode())), nil)
	if !c.ReclaimedAt.Equal(at) || c.Protection != "" {
		t.Errorf("got %+v", c)
	}
	if c, _ := NewCandidate(running(), nil); !c.ReclaimedAt.IsZero() {
		t.Errorf("got %+v", c)
	}
}
