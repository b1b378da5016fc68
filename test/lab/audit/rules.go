package audit

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Rules of what the operator may write to a Workload.
type Rules struct {
	// User that the operator is.
	User string
	// Own checks, which gates decide, and MultiKueue's, by name.
	Own, MultiKueue func(check string) bool
}

const (
	checkManager     = "plimsoll-gate"
	admissionManager = "kueue-admission"
	dispatchManager  = "plimsoll-dispatch" // with --nominate-as=own
	annotation       = "plimsoll.dev/dispatch"
	// repairAfter is how long an eviction must have been under way; conditions
	// tell the time in whole seconds.
	repairAfter = 4 * time.Second
)

// judge a write by the state before it; empty = allowed.
func (r Rules) judge(e *event, before *kueue.Workload) string {
	after := e.After
	switch {
	case e.Verb != "patch":
		return "the operator may only patch"
	case before.ResourceVersion == after.ResourceVersion: // it changed nothing
		return ""
	case e.Object.Subresource == "" && e.manager() == checkManager:
		return r.own(e, before, after)
	case e.Object.Subresource != "status":
		return "it writes as " + e.manager() + " to the workload itself"
	case e.manager() == checkManager:
		return r.check(e, before, after)
	case e.manager() == admissionManager, e.manager() == dispatchManager:
		return r.nomination(e, before, after)
	}
	return "it writes the status as " + e.manager()
}

// own annotation may differ, and with it spec.active: a workload that yields
// sleeps, and the annotation says until when.
func (r Rules) own(e *event, before, after *kueue.Workload) string {
	a, b := before.DeepCopy(), after.DeepCopy()
	slept, sleeps := asleep(a), asleep(b)
	switch {
	case active(a) && !active(b) && (slept || !sleeps):
		return "it deactivates without saying until when"
	case !active(a) && active(b) && (!slept || sleeps):
		return "it activates what somebody else deactivated"
	case active(a) && !active(b):
		if why := r.state(e, before, false); why != "" {
			return why
		}
	}
	for _, w := range []*kueue.Workload{a, b} {
		delete(w.Annotations, annotation)
		if len(w.Annotations) == 0 {
			w.Annotations = nil
		}
		w.ResourceVersion, w.Generation, w.Spec.Active = "", 0, nil
	}
	if !equality.Semantic.DeepEqual(a, b) {
		return "it changes more than its annotation"
	}
	return ""
}

func active(wl *kueue.Workload) bool { return wl.Spec.Active == nil || *wl.Spec.Active }

func asleep(wl *kueue.Workload) bool {
	return strings.Contains(wl.Annotations[annotation], "sleepsUntil")
}

// check: only entries of our own, only of a workload that waits for them.
func (r Rules) check(e *event, before, after *kueue.Workload) string {
	a, b := before.DeepCopy(), after.DeepCopy()
	if len(a.Status.AdmissionChecks) != len(b.Status.AdmissionChecks) {
		return "it adds or removes an entry of the checks"
	}
	repair := true
	for i := range a.Status.AdmissionChecks {
		was, is := &a.Status.AdmissionChecks[i], &b.Status.AdmissionChecks[i]
		switch {
		case equality.Semantic.DeepEqual(was, is):
		case !r.Own(string(was.Name)) || was.Name != is.Name:
			return "it changes the entry of check " + string(was.Name)
		case is.State == kueue.CheckStateRetry && (is.RequeueAfterSeconds == nil || *is.RequeueAfterSeconds != 0):
			return "it asks for a Retry later: quota and pods would stay until then"
		default:
			repair = repair && is.State == kueue.CheckStateReady
		}
	}
	a.Status.AdmissionChecks, b.Status.AdmissionChecks = nil, nil
	a.ResourceVersion, b.ResourceVersion = "", ""
	if !equality.Semantic.DeepEqual(a, b) {
		return "it changes more than its check"
	}
	return r.state(e, before, repair)
}

// nomination: only the list, only longer, only while MultiKueue waits for it.
func (r Rules) nomination(e *event, before, after *kueue.Workload) string {
	a, b := before.DeepCopy(), after.DeepCopy()
	for _, cluster := range before.Status.NominatedClusterNames {
		if !slices.Contains(after.Status.NominatedClusterNames, cluster) {
			return "it revokes the nomination of " + cluster
		}
	}
	a.Status.NominatedClusterNames, b.Status.NominatedClusterNames = nil, nil
	a.ResourceVersion, b.ResourceVersion = "", ""
	if !equality.Semantic.DeepEqual(a, b) {
		return "it changes more than the nominated clusters"
	}
	if before.Status.ClusterName != nil {
		return "it nominates although " + *before.Status.ClusterName + " has admitted"
	}
	for _, check := range before.Status.AdmissionChecks {
		multikueue := r.MultiKueue(string(check.Name))
		if multikueue && check.State != kueue.CheckStatePending || !multikueue && check.State != kueue.CheckStateReady {
			return "it nominates while check " + string(check.Name) + " is " + string(check.State)
		}
	}
	return r.state(e, before, true)
}

// state that allows a write at all. A repair may touch an eviction that has been
// stuck for a while.
func (r Rules) state(e *event, before *kueue.Workload, repair bool) string {
	conditions := before.Status.Conditions
	switch {
	case before.DeletionTimestamp != nil:
		return "the workload is being deleted"
	case apimeta.IsStatusConditionTrue(conditions, kueue.WorkloadFinished):
		return "the workload is finished"
	case !apimeta.IsStatusConditionTrue(conditions, kueue.WorkloadQuotaReserved):
		return "the workload has no quota"
	}
	evicted := apimeta.FindStatusCondition(conditions, kueue.WorkloadEvicted)
	stuck := evicted != nil && evicted.Status == metav1.ConditionTrue
	switch {
	case repair && stuck && before.Status.ClusterName == nil && e.At.Sub(evicted.LastTransitionTime.Time) >= repairAfter:
		return ""
	case !active(before):
		return "the workload is not active"
	case stuck:
		return "the workload is evicted"
	}
	return ""
}
