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

// Rules decide which writes to a Workload the operator may make.
type Rules struct {
	// User is the operator's user name.
	User string
	// IsGateCheck returns whether a PlacementGate decides the check of that name.
	IsGateCheck func(check string) bool
	// IsTrialCheck returns whether a TrialPolicy decides the check of that name.
	IsTrialCheck func(check string) bool
	// IsMultiKueueCheck returns whether MultiKueue decides the check of that name.
	IsMultiKueueCheck func(check string) bool
}

// Names that the operator uses in its writes. They are repeated here on purpose:
// the audit must not depend on the operator's code.
const (
	checkManager      = "plimsoll-gate"
	admissionManager  = "kueue-admission"
	dispatchManager   = "plimsoll-dispatch" // if a policy of the hub clears nominations
	annotation        = "plimsoll.dev/dispatch"
	clusterAnnotation = "plimsoll.dev/cluster"    // of pods
	sleepField        = `"sleepsUntil":"`         // of the annotation's JSON, which escapes quotes in texts
	firstAnnotation   = "plimsoll.dev/gate-first" // the gate decides before the workload has quota
	reclaimableLabel  = "plimsoll.dev/reclaimable"
)

// minEvictionAge is the age from which the operator may repair an eviction.
// Conditions have a resolution of one second.
const minEvictionAge = 4 * time.Second

// violation returns why the operator may not make the write, given the state
// before it. It returns "" if the write is allowed.
func (r Rules) violation(e *event, before *kueue.Workload) string {
	switch {
	case e.Verb != "patch":
		return "the operator may only patch"
	case before.ResourceVersion == e.after.ResourceVersion: // the write changed nothing
		return ""
	case e.Object.Subresource == "" && e.manager == checkManager:
		return r.metadataViolation(e, before)
	case e.Object.Subresource != "status":
		return "it writes as " + e.manager + " to the workload itself"
	case e.manager == checkManager:
		return r.checkViolation(e, before)
	case e.manager == admissionManager, e.manager == dispatchManager:
		return r.nominationViolation(e, before)
	}
	return "it writes the status as " + e.manager
}

// metadataViolation allows a change of the operator's annotation, and of
// spec.active with it: a workload that yields or is reclaimed is deactivated,
// and the annotation records until when.
func (r Rules) metadataViolation(e *event, before *kueue.Workload) string {
	a, b := before.DeepCopy(), e.after.DeepCopy()
	slept, sleeps := isSleeping(a), isSleeping(b)
	deactivates, activates := isActive(a) && !isActive(b), !isActive(a) && isActive(b)
	switch {
	case deactivates && !sleeps:
		return "it deactivates the workload without recording until when"
	case activates && (!slept || sleeps):
		return "it activates a workload that another user deactivated"
	case sleeps && !slept && !deactivates:
		return "it records a time without deactivating the workload"
	case deactivates && apimeta.IsStatusConditionTrue(a.Status.Conditions, kueue.WorkloadAdmitted) && !agreesToReclaim(a):
		return "it deactivates an admitted workload that did not agree to be reclaimed"
	case deactivates && !isDecidedFirst(before):
		if reason := r.stateViolation(e, before, false, false); reason != "" {
			return reason
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

// agreesToReclaim returns whether the workload has a WorkloadPriorityClass, which a policy may
// name, or the label in a pod template.
func agreesToReclaim(wl *kueue.Workload) bool {
	if class := wl.Spec.PriorityClassRef; class != nil && class.Kind == kueue.WorkloadPriorityClassKind {
		return true
	}
	return slices.ContainsFunc(wl.Spec.PodSets, func(set kueue.PodSet) bool { return set.Template.Labels[reclaimableLabel] == "true" })
}

func isActive(wl *kueue.Workload) bool { return wl.Spec.Active == nil || *wl.Spec.Active }

// isDecidedFirst returns whether the gate decides about the workload while it has no quota.
func isDecidedFirst(wl *kueue.Workload) bool {
	has := func(condition string) bool { return apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition) }
	return wl.Annotations[firstAnnotation] == "true" && wl.DeletionTimestamp == nil && !has(kueue.WorkloadQuotaReserved) && !has(kueue.WorkloadFinished)
}

func isSleeping(wl *kueue.Workload) bool {
	return strings.Contains(wl.Annotations[annotation], sleepField)
}

// checkViolation allows changes of the operator's own checks, while the workload
// waits for them. A check for trials ends Ready.
func (r Rules) checkViolation(e *event, before *kueue.Workload) string {
	a, b := before.DeepCopy(), e.after.DeepCopy()
	if len(a.Status.AdmissionChecks) != len(b.Status.AdmissionChecks) {
		return "it adds or removes an entry of the checks"
	}
	repair, reset := true, true
	for i := range a.Status.AdmissionChecks {
		was, is := &a.Status.AdmissionChecks[i], &b.Status.AdmissionChecks[i]
		switch {
		case equality.Semantic.DeepEqual(was, is):
		case !r.IsGateCheck(string(was.Name)) && !r.IsTrialCheck(string(was.Name)) || was.Name != is.Name:
			return "it changes the entry of check " + string(was.Name)
		case r.IsTrialCheck(string(was.Name)) && is.State != kueue.CheckStatePending && is.State != kueue.CheckStateReady:
			return "it sets the trial check " + string(was.Name) + " to " + string(is.State)
		case is.State == kueue.CheckStateRetry && (is.RequeueAfterSeconds == nil || *is.RequeueAfterSeconds != 0):
			return "it requests a Retry later: quota and pods would stay until then"
		case is.State != kueue.CheckStateReady && is.State != was.State && apimeta.IsStatusConditionTrue(a.Status.Conditions, kueue.WorkloadAdmitted):
			return "it takes back its check of an admitted workload"
		case slices.ContainsFunc(is.PodSetUpdates, changesMetadata):
			return "it changes the metadata of pods"
		default:
			repair, reset = repair && is.State == kueue.CheckStateReady, reset && is.State == kueue.CheckStatePending
		}
	}
	a.Status.AdmissionChecks, b.Status.AdmissionChecks = nil, nil
	a.ResourceVersion, b.ResourceVersion = "", ""
	if !equality.Semantic.DeepEqual(a, b) {
		return "it changes more than its check"
	}
	return r.stateViolation(e, before, repair, reset)
}

// changesMetadata returns whether the update changes more of a pod's metadata than the
// annotation that names the chosen cluster.
func changesMetadata(update kueue.PodSetUpdate) bool {
	for key := range update.Annotations {
		if key != clusterAnnotation {
			return true
		}
	}
	return len(update.Labels) > 0
}

// nominationViolation allows the operator to add nominated clusters, while
// MultiKueue waits for them.
func (r Rules) nominationViolation(e *event, before *kueue.Workload) string {
	a, b := before.DeepCopy(), e.after.DeepCopy()
	for _, cluster := range before.Status.NominatedClusterNames {
		if !slices.Contains(e.after.Status.NominatedClusterNames, cluster) {
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
		want := kueue.CheckStateReady
		if r.IsMultiKueueCheck(string(check.Name)) {
			want = kueue.CheckStatePending
		}
		if check.State != want {
			return "it nominates while check " + string(check.Name) + " is " + string(check.State)
		}
	}
	return r.stateViolation(e, before, true, false)
}

// stateViolation allows writes to active workloads with quota. With repair it also
// allows writes to a workload whose eviction does not complete. With reset it also allows writes to a
// workload that has lost its quota, or about which the gate decides first.
func (r Rules) stateViolation(e *event, before *kueue.Workload, repair, reset bool) string {
	conditions := before.Status.Conditions
	switch {
	case before.DeletionTimestamp != nil:
		return "the workload is being deleted"
	case apimeta.IsStatusConditionTrue(conditions, kueue.WorkloadFinished):
		return "the workload is finished"
	case !reset && !apimeta.IsStatusConditionTrue(conditions, kueue.WorkloadQuotaReserved):
		return "the workload has no quota"
	}
	if reset && isDecidedFirst(before) {
		return ""
	}
	eviction := apimeta.FindStatusCondition(conditions, kueue.WorkloadEvicted)
	evicted := eviction != nil && eviction.Status == metav1.ConditionTrue
	switch {
	case repair && evicted && before.Status.ClusterName == nil && e.At.Sub(eviction.LastTransitionTime.Time) >= minEvictionAge:
		return ""
	case !isActive(before):
		return "the workload is not active"
	case evicted:
		return "the workload is evicted"
	}
	return ""
}
