package audit

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Names of the admission checks in Cases.
const (
	gateCheck       = "plimsoll"
	trialCheck      = "trial"
	multiKueueCheck = "multikueue"
)

// Case is a write to a Workload. The rules must forbid it exactly if Reason is set.
type Case struct {
	Name                       string
	Verb, Subresource, Manager string
	Before, After              *kueue.Workload
	// Reason is part of the sentence with which the rules forbid the write.
	Reason string
}

// Cases returns writes that the operator makes, and writes that it must not make. They
// test the audit, and the admission policies in config/guard.
func Cases() []Case {
	type states = []func(*kueue.Workload)
	var cases []Case
	for _, c := range []struct {
		name                       string
		verb, subresource, manager string
		before, after              states
		want                       string
	}{
		{"gate sets its check Ready", "patch", "status", checkManager, nil, states{setReady}, ""},
		{"gate sets its check to Retry", "patch", "status", checkManager, nil, states{setRetry, requeueNow}, ""},
		{"trial check is set Ready to repair an old eviction", "patch", "status", checkManager, states{evictedAgo(9 * time.Second), addTrialCheck(kueue.CheckStatePending, "")},
			states{evictedAgo(9 * time.Second), setReady, addTrialCheck(kueue.CheckStateReady, "")}, ""},
		{"new check of a running workload gets a message", "patch", "status", checkManager, states{admit}, states{admit, setMessage}, ""},
		{"new check of a running workload is set Ready", "patch", "status", checkManager, states{admit}, states{admit, setReady}, ""},
		{"rejection of a running workload by a new check", "patch", "status", checkManager, states{admit}, states{admit, setRejected}, "takes back its check"},
		{"trial check gets a message", "patch", "status", checkManager, states{addTrialCheck(kueue.CheckStatePending, "")}, states{addTrialCheck(kueue.CheckStatePending, "tried")}, ""},
		{"trial check is set Ready", "patch", "status", checkManager, states{addTrialCheck(kueue.CheckStatePending, "")}, states{addTrialCheck(kueue.CheckStateReady, "")}, ""},
		{"gate names the cluster for pods", "patch", "status", checkManager, nil, states{setReady, updatePods(kueue.PodSetUpdate{Annotations: map[string]string{clusterAnnotation: "cluster1"}, NodeSelector: map[string]string{"a": "b"}})}, ""},
		{"check of a workload that has lost its quota is set Pending", "patch", "status", checkManager, states{setReady, removeQuota}, states{removeQuota, setMessage}, ""},
		{"gate writes its annotation", "patch", "", checkManager, nil, states{annotate}, ""},
		{"yielding workload is deactivated", "patch", "", checkManager, nil, states{deactivate, putToSleep}, ""},
		{"labeled running workload is deactivated", "patch", "", checkManager, states{admit, agreeByLabel}, states{admit, agreeByLabel, deactivate, putToSleep}, ""},
		{"running workload with a priority class is deactivated", "patch", "", checkManager, states{admit, agreeByClass}, states{admit, agreeByClass, deactivate, putToSleep}, ""},
		{"running workload whose user wrote a zero time is deactivated", "patch", "", checkManager, states{admit, agreeByLabel, annotateWith(`{"attempt":1,"sleepsUntil":"0001-01-01T00:00:00Z"}`)}, states{admit, agreeByLabel, deactivate, putToSleep}, ""},
		{"running workload whose user wrote the field's name is deactivated", "patch", "", checkManager, states{admit, agreeByLabel, annotateWith(`{"attempt":1,"reason":"sleepsUntil"}`)}, states{admit, agreeByLabel, deactivate, putToSleep}, ""},
		{"sleeping workload is activated", "patch", "", checkManager, states{deactivate, putToSleep}, states{annotate}, ""},
		{"record of a sleeping workload changes", "patch", "", checkManager, states{deactivate, putToSleep}, states{deactivate, annotateWith(`{"attempt":2,"sleepsUntil":"x"}`)}, ""},
		{"record of an active workload keeps the time of a user", "patch", "", checkManager, states{putToSleep}, states{annotateWith(`{"attempt":2,"sleepsUntil":"x"}`)}, ""},
		{"first nomination", "patch", "status", admissionManager, states{setReady}, states{setReady, nominateFirst}, ""},
		{"second nomination", "patch", "status", admissionManager, states{setReady, nominateFirst}, states{setReady, nominateBoth}, ""},
		{"repair of an old eviction", "patch", "status", checkManager, states{evictedAgo(9 * time.Second)}, states{evictedAgo(9 * time.Second), setReady}, ""},
		{"nomination repairs an old eviction of an inactive workload", "patch", "status", admissionManager, states{evictedAgo(time.Minute), deactivate, setReady, nominateFirst},
			states{evictedAgo(time.Minute), deactivate, setReady, nominateBoth}, ""},
		{"workload that the gate decides first gets a message", "patch", "status", checkManager, states{decideFirst, removeQuota, deactivate}, states{decideFirst, removeQuota, deactivate, setMessage}, ""},
		{"workload that the gate decides first is held back again", "patch", "", checkManager, states{decideFirst, removeQuota}, states{putToSleep, decideFirst, removeQuota, deactivate}, ""},

		{"update instead of patch", "update", "status", checkManager, nil, states{setReady}, "may only patch"},
		{"deactivation without a time", "patch", "", checkManager, nil, states{deactivate}, "without recording until when"},
		{"deactivation with the field's name in a text", "patch", "", checkManager, states{admit, agreeByLabel}, states{admit, agreeByLabel, deactivate, annotateWith(`{"attempt":1,"reason":"\"sleepsUntil\":\"x"}`)}, "without recording until when"},
		{"activation against the user", "patch", "", checkManager, states{deactivate}, nil, "another user deactivated"},
		{"time on a workload that another user deactivated", "patch", "", checkManager, states{deactivate}, states{deactivate, putToSleep}, "records a time without deactivating"},
		{"time on an active workload", "patch", "", checkManager, nil, states{putToSleep}, "records a time without deactivating"},
		{"deactivation without quota", "patch", "", checkManager, states{removeQuota}, states{removeQuota, deactivate, putToSleep}, "has no quota"},
		{"deactivation of a running workload that did not agree", "patch", "", checkManager, states{admit}, states{admit, deactivate, putToSleep}, "did not agree"},
		{"deactivation of a running workload without a time", "patch", "", checkManager, states{admit, agreeByLabel}, states{admit, agreeByLabel, deactivate}, "without recording until when"},
		{"change of a label", "patch", "", checkManager, nil, states{addLabel}, "more than its annotation"},
		{"change of MultiKueue's check", "patch", "status", checkManager, nil, states{setMultiKueueReady}, "the entry of check multikueue"},
		{"change of the number of checks", "patch", "status", checkManager, states{removeGateCheck}, nil, "adds or removes an entry"},
		{"trial check is set to Retry", "patch", "status", checkManager, states{addTrialCheck(kueue.CheckStatePending, "")}, states{addTrialCheck(kueue.CheckStateRetry, ""), requeueTrialNow}, "sets the trial check trial to Retry"},
		{"trial check is Rejected", "patch", "status", checkManager, states{addTrialCheck(kueue.CheckStatePending, "")}, states{addTrialCheck(kueue.CheckStateRejected, "")}, "sets the trial check trial to Rejected"},
		{"nomination while a trial runs", "patch", "status", admissionManager, states{setReady, addTrialCheck(kueue.CheckStatePending, "")}, states{setReady, addTrialCheck(kueue.CheckStatePending, ""), nominateFirst}, "while check trial is Pending"},
		{"Retry with a delay", "patch", "status", checkManager, nil, states{setRetry, requeueLater}, "Retry later"},
		{"nomination by the check's manager", "patch", "status", checkManager, nil, states{setReady, nominateFirst}, "more than its check"},
		{"unknown field manager", "patch", "status", "plimsoll", states{setReady}, states{setReady, nominateFirst}, "writes the status as plimsoll"},
		{"nomination before the check is Ready", "patch", "status", admissionManager, nil, states{nominateFirst}, "while check plimsoll is Pending"},
		{"nomination after admission", "patch", "status", admissionManager, states{setReady, admitOnFirst}, states{setReady, admitOnFirst, nominateFirst}, "cluster1 has admitted"},
		{"revoked nomination", "patch", "status", admissionManager, states{setReady, nominateFirst}, states{setReady, nominateSecond}, "revokes the nomination of cluster1"},
		{"nomination that also removes quota", "patch", "status", admissionManager, states{setReady}, states{setReady, nominateFirst, removeQuota}, "more than the nominated"},
		{"check during a recent eviction", "patch", "status", checkManager, states{evictedAgo(time.Second)}, states{evictedAgo(time.Second), setReady}, "is evicted"},
		{"nomination during a recent eviction", "patch", "status", admissionManager, states{evictedAgo(time.Second), setReady}, states{evictedAgo(time.Second), setReady, nominateFirst}, "is evicted"},
		{"nomination of an inactive workload", "patch", "status", admissionManager, states{deactivate, setReady}, states{deactivate, setReady, nominateFirst}, "is not active"},
		{"Retry of a running workload", "patch", "status", checkManager, states{setReady, admit}, states{setRetry, requeueNow, admit}, "takes back its check"},
		{"rejection of a running workload", "patch", "status", checkManager, states{setReady, admit}, states{setRejected, admit}, "takes back its check"},
		{"labels for pods", "patch", "status", checkManager, nil, states{setReady, updatePods(kueue.PodSetUpdate{Labels: map[string]string{"sidecar": "inject"}})}, "metadata of pods"},
		{"annotations for pods", "patch", "status", checkManager, nil, states{setReady, updatePods(kueue.PodSetUpdate{Annotations: map[string]string{"sidecar": "inject"}})}, "metadata of pods"},
		{"Retry during an old eviction", "patch", "status", checkManager, states{evictedAgo(time.Minute)}, states{evictedAgo(time.Minute), setRetry, requeueNow}, "is evicted"},
		{"check of a finished workload", "patch", "status", checkManager, states{finish}, states{finish, setReady}, "is finished"},
		{"check of a workload without quota", "patch", "status", checkManager, states{removeQuota}, states{removeQuota, setReady}, "has no quota"},
		{"check of an inactive workload without quota is set Pending", "patch", "status", checkManager, states{setReady, removeQuota, deactivate}, states{removeQuota, deactivate}, "is not active"},
		{"check of a workload that the gate decides first is set Ready", "patch", "status", checkManager, states{decideFirst, removeQuota, deactivate}, states{decideFirst, removeQuota, deactivate, setReady}, "has no quota"},
		{"check of an inactive workload with quota gets a message", "patch", "status", checkManager, states{decideFirst, deactivate}, states{decideFirst, deactivate, setMessage}, "is not active"},
		{"workload is marked as decided first", "patch", "", checkManager, nil, states{decideFirst}, "more than its annotation"},
		{"nomination of a workload without quota", "patch", "status", admissionManager, states{setReady, removeQuota}, states{setReady, removeQuota, nominateFirst}, "has no quota"},
		{"check of an inactive workload", "patch", "status", checkManager, states{deactivate}, states{deactivate, setReady}, "is not active"},
		{"check of a deleted workload", "patch", "status", checkManager, states{markDeleted}, states{markDeleted, setReady}, "is being deleted"},
	} {
		cases = append(cases, Case{c.name, c.verb, c.subresource, c.manager, pendingWorkload(c.before...), pendingWorkload(c.after...), c.want})
	}
	return cases
}

// pendingWorkload has quota, and its checks are Pending.
func pendingWorkload(change ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{TypeMeta: metav1.TypeMeta{Kind: "Workload"}}
	wl.Namespace, wl.Name, wl.UID, wl.ResourceVersion = "team-a", "job", "uid", "9"
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{
		{Name: gateCheck, State: kueue.CheckStatePending}, {Name: multiKueueCheck, State: kueue.CheckStatePending}}
	for _, f := range change {
		f(wl)
	}
	return wl
}

func setReady(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady }
func setRetry(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateRetry }
func setRejected(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[0].State = kueue.CheckStateRejected
}
func setMessage(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].Message = "two checks" }
func updatePods(update kueue.PodSetUpdate) func(*kueue.Workload) {
	update.Name = "main"
	return func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{update} }
}
func requeueNow(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To[int32](0)
}
func requeueLater(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To[int32](20)
}
func addTrialCheck(state kueue.CheckState, message string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: trialCheck, State: state, Message: message})
	}
}
func requeueTrialNow(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[2].RequeueAfterSeconds = ptr.To[int32](0)
}
func setMultiKueueReady(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[1].State = kueue.CheckStateReady
}
func removeGateCheck(wl *kueue.Workload) { wl.Status.AdmissionChecks = wl.Status.AdmissionChecks[1:] }
func nominateFirst(wl *kueue.Workload)   { wl.Status.NominatedClusterNames = []string{"cluster1"} }
func nominateSecond(wl *kueue.Workload)  { wl.Status.NominatedClusterNames = []string{"cluster2"} }
func nominateBoth(wl *kueue.Workload) {
	wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"}
}
func admitOnFirst(wl *kueue.Workload)  { wl.Status.ClusterName = ptr.To("cluster1") }
func admitOnSecond(wl *kueue.Workload) { wl.Status.ClusterName = ptr.To("cluster2") }
func removeQuota(wl *kueue.Workload)   { wl.Status.Conditions = nil }
func deactivate(wl *kueue.Workload)    { wl.Spec.Active = ptr.To(false) }
func markDeleted(wl *kueue.Workload)   { wl.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
func annotate(wl *kueue.Workload)      { annotateWith("{}")(wl) }
func annotateWith(text string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Annotations = map[string]string{annotation: text} }
}
func admit(wl *kueue.Workload) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue})
}
func agreeByLabel(wl *kueue.Workload) {
	set := kueue.PodSet{Name: "main", Count: 1}
	set.Template.Labels = map[string]string{reclaimableLabel: "true"}
	wl.Spec.PodSets = []kueue.PodSet{set}
}
func agreeByClass(wl *kueue.Workload) {
	wl.Spec.PriorityClassRef, wl.Spec.Priority = kueue.NewWorkloadPriorityClassRef("spot"), ptr.To[int32](0)
}
func putToSleep(wl *kueue.Workload) { annotateWith(`{"sleepsUntil":"x"}`)(wl) }
func decideFirst(wl *kueue.Workload) {
	if wl.Annotations == nil {
		wl.Annotations = map[string]string{}
	}
	wl.Annotations[firstAnnotation] = "true"
}
func addLabel(wl *kueue.Workload) { wl.Labels = map[string]string{"a": "b"} }
func finish(wl *kueue.Workload) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
}
func evictedAgo(ago time.Duration) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at.Add(-ago))})
	}
}

// at is the time of every write.
var at = time.Unix(1_000_000, 0)
