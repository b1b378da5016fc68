package trial

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func (h *hub) profile() v1alpha1.JobProfileStatus {
	h.t.Helper()
	p := &v1alpha1.JobProfile{}
	if err := client.IgnoreNotFound(h.Get(h.t.Context(), client.ObjectKey{Namespace: "team-a", Name: "llama"}, p)); err != nil {
		h.t.Fatal(err)
	}
	return p.Status
}

func TestJobIsTriedOnUnknownModels(t *testing.T) {
	h := newHub(t)
	h.settle()
	if copies := h.copies(); len(copies) != 2 {
		t.Fatalf("%d copies, want 2", len(copies))
	}
	if c := h.check(); c.State != kueue.CheckStatePending || c.Message != "the job is tried on l4, h100" {
		t.Errorf("check %s: %s", c.State, c.Message)
	}
	if s := h.policy().Status; s.CopiesToday != 2 || len(s.Trials) != 1 || s.Trials[0].Profile != "llama" {
		t.Errorf("status %+v", s)
	}
	h.run(100 * time.Second)
	h.settle()
	if len(h.copies()) != 2 {
		t.Error("the copies were deleted before the last samples were there")
	}
	h.after(20 * time.Second)
	h.wantPassed("the profile of the job knows l4, h100")
	p := h.profile()
	if p.Runs != 0 || len(p.Models) != 2 {
		t.Fatalf("profile %+v", p)
	}
	for _, m := range p.Models {
		if m.Runs != 0 || m.Trials != 1 || m.MemoryPeakP90Bytes == nil || *m.MemoryPeakP90Bytes < 30e9 || *m.MemoryPeakP90Bytes > 32e9 || m.DurationP50Seconds != nil {
			t.Errorf("model %+v", m)
		}
	}
	// The next job with this profile is not tried.
	h.change(func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending })
	h.settle()
	h.wantPassed("no trial: the profile of the job knows l4, h100")
}

// With a throughputQuery, models that only runs measured are tried, too: the duration of a run can't
// be compared with the throughput of a trial. A trial without a throughput is not repeated.
func TestModelsOfRunsAreTriedForTheirThroughput(t *testing.T) {
	for _, tc := range []struct {
		name, throughputQuery string
		known                 v1alpha1.ModelProfile
		want                  string // message of the check
	}{
		{"run, with a throughputQuery", "steps", v1alpha1.ModelProfile{Model: "h100", Runs: 3, DurationP50Seconds: new(int64(600))}, "the job is tried on l4, h100"},
		{"run, without a throughputQuery", "", v1alpha1.ModelProfile{Model: "h100", Runs: 3, DurationP50Seconds: new(int64(600))}, "the job is tried on l4"},
		{"tried", "steps", v1alpha1.ModelProfile{Model: "h100", Trials: 1, ThroughputP50: "5"}, "the job is tried on l4"},
		{"tried without a throughput", "steps", v1alpha1.ModelProfile{Model: "h100", Trials: 1}, "the job is tried on l4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t)
			p := h.policy()
			p.Spec.ThroughputQuery = tc.throughputQuery
			if err := h.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			profile := &v1alpha1.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "llama"}}
			if err := h.Create(t.Context(), profile); err != nil {
				t.Fatal(err)
			}
			profile.Status.Models = []v1alpha1.ModelProfile{tc.known}
			if err := h.Status().Update(t.Context(), profile); err != nil {
				t.Fatal(err)
			}
			h.settle()
			if c := h.check(); c.Message != tc.want {
				t.Errorf("check %s: %s, want %s", c.State, c.Message, tc.want)
			}
		})
	}
}

func TestJobsThatAreNotTried(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*hub)
		message string
	}{
		{"not opted in", func(h *hub) {
			h.change(func(wl *kueue.Workload) { delete(wl.Spec.PodSets[0].Template.Labels, v1alpha1.TrialLabel) })
		}, "the job has no label plimsoll.dev/trial"},
		{"another kind of job", func(h *hub) { h.change(func(wl *kueue.Workload) { wl.OwnerReferences[0].Kind = "RayJob" }) }, "only Jobs of batch/v1 are tried"},
		{"a job that does not exist", func(h *hub) { h.change(func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "other" }) }, "Job train does not exist"},
		{"a job that ran before its queue had the check", func(h *hub) {
			h.change(func(wl *kueue.Workload) {
				wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue})
			})
		}, "the job runs already"},
		{"a job on a cluster", func(h *hub) {
			h.change(func(wl *kueue.Workload) { cluster := "cluster1"; wl.Status.ClusterName = &cluster })
		}, "the job runs already"},
		{"a job that was evicted", func(h *hub) {
			h.change(func(wl *kueue.Workload) { wl.Status.AccumulatedPastExecutionTimeSeconds = new(int32(18000)) })
		}, "the job ran before"},
		{"a slice of an elastic job", func(h *hub) {
			h.change(func(wl *kueue.Workload) {
				wl.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-replacement-for": "team-a/old"}
			})
		}, "the job runs already"},
		{"a copy", func(h *hub) {
			h.change(func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Labels[v1alpha1.TrialOfLabel] = "x" })
		}, "the job is the copy of another one"},
		{"a small job", func(h *hub) { h.change(func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 0 }) }, "the job requests 0 devices"},
		{"no policy", func(h *hub) {
			if err := h.Delete(t.Context(), h.policy()); err != nil {
				t.Fatal(err)
			}
		}, "TrialPolicy gpu does not exist"},
		{"no queue", func(h *hub) {
			if err := h.Delete(t.Context(), &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "trials"}}); err != nil {
				t.Fatal(err)
			}
		}, "LocalQueue trials does not exist in namespace team-a"},
		{"a queue that Kueue stopped", func(h *hub) {
			queue := &kueue.LocalQueue{}
			if err := h.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "trials"}, queue); err != nil {
				t.Fatal(err)
			}
			queue.Status.Conditions = []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionFalse, Reason: "ClusterQueueIsInactive"}}
			if err := h.Update(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
		}, "LocalQueue trials in namespace team-a is not active"},
		{"a Workload with the label and the job of another user", func(h *hub) {
			h.changeJob(func(job *batchv1.Job) { job.Spec.Template.Labels = nil })
		}, "Job train has no label plimsoll.dev/trial"},
		{"a job that writes to a volume", func(h *hub) {
			h.changeJob(func(job *batchv1.Job) {
				spec := &job.Spec.Template.Spec
				spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
				spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			})
		}, "no trial: copies would write to the volume data"},
		{"no source", func(h *hub) { h.sources.Delete("thanos") }, "thanos"},
		{"trials are disabled", func(h *hub) { h.r.enabled = false }, "the operator runs without --trials"},
		{"the budget is exhausted", func(h *hub) {
			p := h.policy()
			p.Status.Day, p.Status.CopiesToday = "2026-05-01", 3
			if err := h.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}, "TrialPolicy gpu has created all copies of today"},
		{"copies are forbidden", func(h *hub) {
			h.refuse = func(verb string, _ client.Object) error {
				if verb == "create" {
					return errors.New("jobs are forbidden")
				}
				return nil
			}
		}, "the copy for l4 could not be created: jobs are forbidden"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t)
			tc.change(h)
			h.settle()
			if c := h.check(); c.State != kueue.CheckStateReady {
				t.Errorf("check %s", c.State)
			}
			if tc.name != "no policy" {
				h.wantPassed(tc.message)
			}
		})
	}
}

func TestJobPassesAtTheTimeLimit(t *testing.T) {
	t.Run("the copies get no device", func(t *testing.T) {
		h := newHub(t)
		h.settle()
		h.queue(kueue.WorkloadStatus{})
		h.after(9*time.Minute + 55*time.Second)
		if h.check().State != kueue.CheckStatePending || len(h.copies()) != 2 {
			t.Error("the trial ended early")
		}
		h.after(4 * time.Second)
		h.wantPassed("the trial did not end within 600 s")
	})
	t.Run("Kueue ignores the copies", func(t *testing.T) {
		h := newHub(t)
		h.settle()
		h.after(time.Minute)
		h.wantPassed("the trial measured nothing")
	})
	t.Run("the source fails", func(t *testing.T) {
		h := newHub(t)
		h.settle()
		h.run(100 * time.Second)
		h.failing = errors.New("connection refused")
		h.after(20 * time.Second)
		if h.check().State != kueue.CheckStatePending || len(h.copies()) != 2 {
			t.Error("the queries are not repeated")
		}
		h.after(8 * time.Minute)
		h.wantPassed("the trial did not end within 600 s")
	})
	t.Run("the source recovers", func(t *testing.T) {
		h := newHub(t)
		h.settle()
		h.run(100 * time.Second)
		h.failing = errors.New("connection refused")
		h.after(20 * time.Second)
		h.failing = nil
		h.after(15 * time.Second)
		h.wantPassed("the profile of the job knows l4, h100")
	})
}

func TestCopiesWithoutSamples(t *testing.T) {
	h := newHub(t)
	h.silent = true
	h.settle()
	h.run(100 * time.Second)
	h.after(20 * time.Second)
	h.wantPassed("the trial measured nothing")
	if p := h.profile(); len(p.Models) != 0 {
		t.Errorf("profile %+v", p)
	}
}

func TestRestartInTheMiddle(t *testing.T) {
	h := newHub(t)
	// The operator is killed right after it counted the copies.
	if _, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if len(h.copies()) != 0 || h.policy().Status.CopiesToday != 2 {
		t.Fatalf("%d copies, status %+v", len(h.copies()), h.policy().Status)
	}
	h.start()
	h.settle()
	if len(h.copies()) != 2 || h.policy().Status.CopiesToday != 2 {
		t.Fatalf("%d copies, status %+v", len(h.copies()), h.policy().Status)
	}
	// It starts again, and does not know its sources yet.
	h.run(100 * time.Second)
	h.sources.Delete("thanos")
	h.start()
	h.after(20 * time.Second)
	h.registerSource()
	h.after(15 * time.Second)
	h.wantPassed("the profile of the job knows l4, h100")
	for _, m := range h.profile().Models {
		if m.Trials != 1 {
			t.Errorf("%d trials of %s", m.Trials, m.Model)
		}
	}
}

func TestCopiesOfAnEndedJobAreDeleted(t *testing.T) {
	for _, tc := range []struct {
		name string
		ends func(*hub)
	}{
		{"deleted", func(h *hub) {
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			if err := h.Delete(t.Context(), wl); err != nil {
				t.Fatal(err)
			}
		}},
		{"evicted", func(h *hub) {
			h.change(func(wl *kueue.Workload) {
				wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted"})
			})
		}},
		{"finished", func(h *hub) {
			h.change(func(wl *kueue.Workload) {
				wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Failed"})
			})
		}},
		{"without quota", func(h *hub) { h.change(func(wl *kueue.Workload) { wl.Status.Conditions = nil }) }},
		{"retried by another client", func(h *hub) {
			h.change(func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateRetry })
		}},
		{"the check is deleted", func(h *hub) {
			if err := h.Delete(t.Context(), &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "trial"}}); err != nil {
				t.Fatal(err)
			}
		}},
		{"deactivated", func(h *hub) { h.change(func(wl *kueue.Workload) { wl.Spec.Active = new(false) }) }},
		{"no check any more", func(h *hub) { h.change(func(wl *kueue.Workload) { wl.Status.AdmissionChecks = nil }) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t)
			h.settle()
			if len(h.copies()) != 2 {
				t.Fatal("no copies")
			}
			tc.ends(h)
			h.start()
			h.settle()
			if n := len(h.copies()); n > 0 || len(h.policy().Status.Trials) > 0 {
				t.Errorf("%d copies, trials %+v", n, h.policy().Status.Trials)
			}
			if diff := cmp.Diff([]string{"uid"}, h.policy().Status.Tried); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A copy leads to its Workload, also if the Workload is gone: the copies are deleted then.
func TestCopiesLeadToTheirWorkload(t *testing.T) {
	h := newHub(t)
	h.settle()
	for _, job := range h.copies() {
		if got := workloadOfCopy(t.Context(), &job); len(got) != 1 || got[0].NamespacedName != key {
			t.Errorf("requests %v", got)
		}
	}
}

// A Workload that was deleted while no operator ran leaves an entry in the status.
func TestPolicyForgetsTrialsOfDeletedWorkloads(t *testing.T) {
	h := newHub(t)
	h.createSource()
	p := h.policy()
	p.Status.Trials = []v1alpha1.RunningTrial{{WorkloadUID: "uid", Namespace: "team-a", Workload: "job-train"}, {WorkloadUID: "old", Namespace: "team-a", Workload: "job-train"}, {WorkloadUID: "gone", Namespace: "team-a", Workload: "gone"}}
	if err := h.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := h.r.reconcilePolicy(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	s := h.policy().Status
	if len(s.Trials) != 1 || s.Trials[0].WorkloadUID != "uid" || !slices.Equal(s.Tried, []string{"old", "gone"}) || len(s.Conditions) != 1 || s.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("status %+v", s)
	}
}

// Ready follows the source: its deletion leads to its policies, also before it is unregistered.
func TestPolicyIsNotReadyWithoutItsSource(t *testing.T) {
	h := newHub(t)
	for _, source := range []string{"thanos", "other"} {
		requests := h.r.policiesOfSource(t.Context(), &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: source}})
		if want := source == "thanos"; len(requests) > 0 != want || want && requests[0].Name != "gpu" {
			t.Errorf("requests for the source %s: %v", source, requests)
		}
	}
	source := h.createSource()
	for _, want := range []metav1.Condition{
		{Status: metav1.ConditionTrue, Reason: "Ready"},
		{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSourceNotFound, Message: `every job passes without a trial: MetricsSource "thanos": not found`},
	} {
		if _, err := h.r.reconcilePolicy(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "gpu"}}); err != nil {
			t.Fatal(err)
		}
		got := h.policy().Status.Conditions
		if len(got) != 1 || got[0].Status != want.Status || got[0].Reason != want.Reason || want.Message != "" && got[0].Message != want.Message {
			t.Errorf("conditions %+v, want %+v", got, want)
		}
		if err := client.IgnoreNotFound(h.Delete(t.Context(), source)); err != nil {
			t.Fatal(err)
		}
	}
}
