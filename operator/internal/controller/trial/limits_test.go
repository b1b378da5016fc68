package trial

import (
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/policies/trial"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// look reconciles once.
func (h *hub) look() reconcile.Result {
	h.t.Helper()
	result, err := h.r.Reconcile(h.t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		h.t.Fatalf("the work queue would wait longer after each failure: %v", err)
	}
	return result
}

// A job that is evicted during its trial passes at once when it has quota again, so that its time
// limit counts once.
func TestJobIsTriedOnce(t *testing.T) {
	h := newHub(t)
	h.settle()
	h.change(func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted"})
	})
	h.settle()
	h.now = h.now.Add(time.Minute)
	h.change(func(wl *kueue.Workload) {
		wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: metav1.NewTime(h.now)}}
		wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending
	})
	h.start()
	h.settle()
	h.wantPassed("no trial: the job was tried before")
	if s := h.policy().Status; s.CopiesToday != 2 {
		t.Errorf("status %+v", s)
	}
}

// An eviction of a job that MultiKueue sent may complete only when all checks are Ready.
func TestEvictedJobPasses(t *testing.T) {
	h := newHub(t)
	h.settle()
	h.change(func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted"})
	})
	h.settle()
	h.wantPassed("no trial: the job is being evicted")
}

// What fails during a trial is repeated, and never keeps the job beyond the limit.
func TestFailuresDoNotExtendTheLimit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refuse  func(verb string, obj client.Object) bool
		message string
	}{
		{"the Job can't be read", func(verb string, obj client.Object) bool {
			_, ok := obj.(*batchv1.Job)
			return ok && verb == "get"
		}, "the trial did not end within 600 s"},
		{"the copies can't be listed", func(verb string, _ client.Object) bool { return verb == "list" }, "the trial did not end within 600 s"},
		{"the status of the policy can't be written", func(verb string, obj client.Object) bool {
			_, ok := obj.(*v1alpha1.TrialPolicy)
			return ok && verb == "patch"
		}, "the trial did not end within 600 s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t)
			h.settle()
			h.run(100 * time.Second)
			h.refuse = func(verb string, obj client.Object) error {
				if tc.refuse(verb, obj) {
					return errors.New("etcd is slow")
				}
				return nil
			}
			limit := noon.Add(10 * time.Minute)
			for range 100 {
				result := h.look()
				if h.check().State == kueue.CheckStateReady {
					break
				}
				if result.RequeueAfter <= 0 || result.RequeueAfter > 15*time.Second {
					t.Fatalf("next look after %s", result.RequeueAfter)
				}
				h.now = h.now.Add(result.RequeueAfter)
			}
			if h.now.After(limit.Add(rereadDelay)) {
				t.Errorf("the job passed %s after the limit", h.now.Sub(limit))
			}
			h.refuse = nil
			h.settle()
			h.wantPassed(tc.message)
		})
	}
}

// A slow source has the time that is left, and no more.
func TestQueriesEndAtTheLimit(t *testing.T) {
	h := newHub(t)
	h.settle()
	h.run(100 * time.Second)
	h.failing = errors.New("connection refused")
	h.now = noon.Add(10*time.Minute - 3*time.Second)
	h.look()
	if h.limit > 3*time.Second || h.limit <= 0 {
		t.Errorf("a query had %s", h.limit)
	}
}

func TestCopiesAreDeletedAfterAFailure(t *testing.T) {
	h := newHub(t)
	h.settle()
	h.queue(kueue.WorkloadStatus{})
	h.refuse = func(verb string, _ client.Object) error {
		if verb == "delete" {
			return errors.New("etcd is slow")
		}
		return nil
	}
	h.after(10 * time.Minute)
	if c := h.check(); c.State != kueue.CheckStateReady {
		t.Errorf("the job waits for the removal of its copies: %+v", c)
	}
	if result := h.look(); result.RequeueAfter <= 0 || result.RequeueAfter > 15*time.Second {
		t.Errorf("next look after %s", result.RequeueAfter)
	}
	h.refuse = nil
	h.settle()
	h.wantPassed("the trial did not end within 600 s")
}

// While Kueue's webhook is down, thousands of jobs may wait to pass.
func TestFailedPassIsNotRepeatedEverySecond(t *testing.T) {
	h := newHub(t)
	h.change(func(wl *kueue.Workload) { delete(wl.Spec.PodSets[0].Template.Labels, v1alpha1.TrialLabel) })
	h.refuse = func(verb string, _ client.Object) error {
		if verb == "patch" {
			return errors.New("the webhook does not respond")
		}
		return nil
	}
	h.now = noon.Add(time.Hour)
	if result := h.look(); result.RequeueAfter != retryInterval {
		t.Errorf("next look after %s", result.RequeueAfter)
	}
}

// The cluster of a copy may leave the hub. The other copies still count.
func TestCopyThatCannotBeMeasured(t *testing.T) {
	h := newHub(t)
	h.settle()
	h.run(100 * time.Second)
	for _, job := range h.copies() {
		if job.Name == trial.CopyName("uid", "l4") { // the first model
			wl := &kueue.Workload{}
			if err := h.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "copy-" + job.Name}, wl); err != nil {
				t.Fatal(err)
			}
			wl.Status.ClusterName = new("gone")
			if err := h.Status().Update(t.Context(), wl); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.after(20 * time.Second)
	if p := h.profile(); len(p.Models) != 1 || p.Models[0].Model != "h100" {
		t.Errorf("profile %+v", p)
	}
	h.after(10 * time.Minute)
	if c := h.check(); c.State != kueue.CheckStateReady || len(h.copies()) > 0 {
		t.Errorf("check %s: %s, %d copies", c.State, c.Message, len(h.copies()))
	}
}

func TestPolicyIsDeletedDuringATrial(t *testing.T) {
	h := newHub(t)
	h.settle()
	if err := h.Delete(t.Context(), h.policy()); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if c := h.check(); c.State != kueue.CheckStateReady || c.Message != "no trial: TrialPolicy gpu does not exist" || len(h.copies()) > 0 {
		t.Errorf("check %s: %s, %d copies", c.State, c.Message, len(h.copies()))
	}
}

// The operator is started again without --trials and its permissions.
func TestTrialsAreDisabledDuringATrial(t *testing.T) {
	h := newHub(t)
	h.settle()
	h.start()
	h.r.enabled = false
	h.refuse = func(_ string, obj client.Object) error {
		if _, ok := obj.(*batchv1.Job); ok {
			return errors.New("forbidden")
		}
		return nil
	}
	h.settle()
	h.refuse = nil
	if c := h.check(); c.State != kueue.CheckStateReady || c.Message != "no trial: the operator runs without --trials" {
		t.Errorf("check %s: %s", c.State, c.Message)
	}
	if s := h.policy().Status; len(s.Trials) > 0 {
		t.Errorf("trials %+v", s.Trials)
	}
}

// A source that exists and is not registered yet, as after a restart, does not end trials.
func TestSourceIsNotRegisteredYet(t *testing.T) {
	h := newHub(t)
	if err := h.Create(t.Context(), &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "thanos"}}); err != nil {
		t.Fatal(err)
	}
	h.sources.Delete("thanos")
	if result := h.look(); result.RequeueAfter != timing.SourceRetry || h.check().State != kueue.CheckStatePending {
		t.Errorf("next look after %s, check %s", result.RequeueAfter, h.check().State)
	}
	h.now = noon.Add(10 * time.Minute)
	h.settle()
	h.wantPassed("no trial: the job has waited for 600 s")
}

// Only the first check tries a job. The other one passes it, and nothing waits forever.
func TestTwoChecksForTrials(t *testing.T) {
	h := newHub(t)
	other := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.TrialControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "TrialPolicy", Name: "gpu"}}}
	if err := h.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	h.change(func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "other", State: kueue.CheckStatePending})
	})
	h.settle()
	wl := &kueue.Workload{}
	if err := h.Get(t.Context(), key, wl); err != nil {
		t.Fatal(err)
	}
	if c := wl.Status.AdmissionChecks[1]; c.State != kueue.CheckStateReady || c.Message != "no trial: check trial decides whether the job is tried" {
		t.Errorf("second check %s: %s", c.State, c.Message)
	}
	if len(h.copies()) != 2 {
		t.Errorf("%d copies", len(h.copies()))
	}
	h.run(100 * time.Second)
	h.after(20 * time.Second)
	h.wantPassed("the profile of the job knows l4, h100")
}

// A crash in the first second would make the model known.
func TestFailedCopiesAreNotMeasured(t *testing.T) {
	for reason, want := range map[string]string{batchv1.JobReasonBackoffLimitExceeded: "the trial measured nothing", batchv1.JobReasonDeadlineExceeded: "the profile of the job knows l4, h100"} {
		t.Run(reason, func(t *testing.T) {
			h := newHub(t)
			h.settle()
			for _, job := range h.copies() {
				job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: reason}}
				if err := h.Status().Update(t.Context(), &job); err != nil {
					t.Fatal(err)
				}
			}
			h.run(100 * time.Second)
			h.after(20 * time.Second)
			h.wantPassed(want)
		})
	}
}

// A check that is deleted and created again leaves the entries of Workloads as they are.
func TestChecksLeadToTheirWorkloads(t *testing.T) {
	h := newHub(t)
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.TrialControllerName}}
	if got := h.r.workloadsOfCheck(t.Context(), check); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("requests %v", got)
	}
	check.Spec.ControllerName = v1alpha1.ControllerName
	if got := h.r.workloadsOfCheck(t.Context(), check); len(got) > 0 {
		t.Errorf("requests for the check of a gate: %v", got)
	}
}

// A check may be removed while no operator runs. The trial must not count for maxConcurrent then.
func TestPolicyEndsTrialsThatNoCheckWaitsFor(t *testing.T) {
	h := newHub(t)
	h.settle()
	h.change(func(wl *kueue.Workload) { wl.Status.AdmissionChecks = nil })
	h.start()
	if _, err := h.r.reconcilePolicy(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	if s := h.policy().Status; len(s.Trials) > 0 || len(s.Tried) != 1 {
		t.Errorf("status %+v", s)
	}
}
