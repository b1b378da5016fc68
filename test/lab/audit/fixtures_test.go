package audit

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const operator = "system:serviceaccount:plimsoll-system:plimsoll-operator"

var rules = Rules{
	User:              operator,
	IsGateCheck:       func(c string) bool { return c == "plimsoll" },
	IsMultiKueueCheck: func(c string) bool { return c == "multikueue" },
}

// pendingWorkload has quota, and its checks are Pending.
func pendingWorkload(change ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{TypeMeta: metav1.TypeMeta{Kind: "Workload"}}
	wl.Namespace, wl.Name, wl.UID, wl.ResourceVersion = "team-a", "job", "uid", "9"
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{
		{Name: "plimsoll", State: kueue.CheckStatePending}, {Name: "multikueue", State: kueue.CheckStatePending}}
	for _, f := range change {
		f(wl)
	}
	return wl
}

func setReady(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady }
func setRetry(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateRetry }
func requeueNow(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To[int32](0)
}
func requeueLater(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To[int32](20)
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
func annotate(wl *kueue.Workload)      { wl.Annotations = map[string]string{annotation: "{}"} }
func putToSleep(wl *kueue.Workload) {
	wl.Annotations = map[string]string{annotation: `{"sleepsUntil":"x"}`}
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

var at = time.Unix(1_000_000, 0)

func auditLine(t *testing.T, user, verb, subresource, manager string, after *kueue.Workload) []byte {
	t.Helper()
	uri := "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/job"
	out, err := json.Marshal(map[string]any{
		"verb": verb, "requestURI": uri + "?fieldManager=" + manager, "requestReceivedTimestamp": at.UTC().Format("2006-01-02T15:04:05.000000Z"),
		"user": map[string]any{"username": user}, "objectRef": map[string]any{"resource": "workloads", "subresource": subresource},
		"responseStatus": map[string]any{"code": 200}, "responseObject": after})
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}
