package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const operator = "system:serviceaccount:plimsoll-system:plimsoll-operator"

var rules = Rules{User: operator, Own: func(c string) bool { return c == "plimsoll" }, MultiKueue: func(c string) bool { return c == "multikueue" }}

// waiting is a workload with quota whose checks are Pending, a minute old.
func waiting(change ...func(*kueue.Workload)) *kueue.Workload {
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

func ready(wl *kueue.Workload)     { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady }
func retry(wl *kueue.Workload)     { wl.Status.AdmissionChecks[0].State = kueue.CheckStateRetry }
func now(wl *kueue.Workload)       { wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To[int32](0) }
func later(wl *kueue.Workload)     { wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To[int32](20) }
func foreign(wl *kueue.Workload)   { wl.Status.AdmissionChecks[1].State = kueue.CheckStateReady }
func removed(wl *kueue.Workload)   { wl.Status.AdmissionChecks = wl.Status.AdmissionChecks[1:] }
func one(wl *kueue.Workload)       { wl.Status.NominatedClusterNames = []string{"cluster1"} }
func other(wl *kueue.Workload)     { wl.Status.NominatedClusterNames = []string{"cluster2"} }
func two(wl *kueue.Workload)       { wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"} }
func on1(wl *kueue.Workload)       { wl.Status.ClusterName = ptr.To("cluster1") }
func on2(wl *kueue.Workload)       { wl.Status.ClusterName = ptr.To("cluster2") }
func noQuota(wl *kueue.Workload)   { wl.Status.Conditions = nil }
func inactive(wl *kueue.Workload)  { wl.Spec.Active = ptr.To(false) }
func deleting(wl *kueue.Workload)  { wl.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
func annotated(wl *kueue.Workload) { wl.Annotations = map[string]string{annotation: "{}"} }
func sleeping(wl *kueue.Workload) {
	wl.Annotations = map[string]string{annotation: `{"sleepsUntil":"x"}`}
}
func labeled(wl *kueue.Workload) { wl.Labels = map[string]string{"a": "b"} }
func finished(wl *kueue.Workload) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
}
func evicted(ago time.Duration) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at.Add(-ago))})
	}
}

var at = time.Unix(1_000_000, 0)

func line(t *testing.T, user, verb, subresource, manager string, after *kueue.Workload) []byte {
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

func TestForbidden(t *testing.T) {
	type states = []func(*kueue.Workload)
	for _, tc := range []struct {
		name                       string
		verb, subresource, manager string
		before, after              states
		want                       string
	}{
		{"a decision", "patch", "status", checkManager, nil, states{ready}, ""},
		{"a yield", "patch", "status", checkManager, nil, states{retry, now}, ""},
		{"the annotation", "patch", "", checkManager, nil, states{annotated}, ""},
		{"a workload that yields", "patch", "", checkManager, nil, states{inactive, sleeping}, ""},
		{"a workload that wakes", "patch", "", checkManager, states{inactive, sleeping}, states{annotated}, ""},
		{"a nomination", "patch", "status", admissionManager, states{ready}, states{ready, one}, ""},
		{"a widening", "patch", "status", admissionManager, states{ready, one}, states{ready, two}, ""},
		{"the repair of an eviction", "patch", "status", checkManager, states{evicted(9 * time.Second)}, states{evicted(9 * time.Second), ready}, ""},
		{"its widening, after a deactivation, too", "patch", "status", admissionManager, states{evicted(time.Minute), inactive, ready, one},
			states{evicted(time.Minute), inactive, ready, two}, ""},

		{"an update", "update", "status", checkManager, nil, states{ready}, "may only patch"},
		{"a deactivation for good", "patch", "", checkManager, nil, states{inactive}, "without saying until when"},
		{"an activation against the user", "patch", "", checkManager, states{inactive}, nil, "somebody else deactivated"},
		{"a yield without quota", "patch", "", checkManager, states{noQuota}, states{noQuota, inactive, sleeping}, "has no quota"},
		{"a label", "patch", "", checkManager, nil, states{labeled}, "more than its annotation"},
		{"another's check", "patch", "status", checkManager, nil, states{foreign}, "the entry of check multikueue"},
		{"a removed check", "patch", "status", checkManager, states{removed}, nil, "adds or removes an entry"},
		{"a later Retry", "patch", "status", checkManager, nil, states{retry, later}, "Retry later"},
		{"a nomination with a check", "patch", "status", checkManager, nil, states{ready, one}, "more than its check"},
		{"the wrong manager", "patch", "status", "plimsoll", states{ready}, states{ready, one}, "writes the status as plimsoll"},
		{"a nomination too soon", "patch", "status", admissionManager, nil, states{one}, "while check plimsoll is Pending"},
		{"a nomination too late", "patch", "status", admissionManager, states{ready, on1}, states{ready, on1, one}, "cluster1 has admitted"},
		{"a revocation", "patch", "status", admissionManager, states{ready, one}, states{ready, other}, "revokes the nomination of cluster1"},
		{"quota with a nomination", "patch", "status", admissionManager, states{ready}, states{ready, one, noQuota}, "more than the nominated"},
		{"an eviction", "patch", "status", checkManager, states{evicted(time.Second)}, states{evicted(time.Second), ready}, "is evicted"},
		{"a nomination during an eviction", "patch", "status", admissionManager, states{evicted(time.Second), ready}, states{evicted(time.Second), ready, one}, "is evicted"},
		{"a nomination of an inactive one", "patch", "status", admissionManager, states{inactive, ready}, states{inactive, ready, one}, "is not active"},
		{"a repair that waits", "patch", "status", checkManager, states{evicted(time.Minute)}, states{evicted(time.Minute), retry, now}, "is evicted"},
		{"a finished one", "patch", "status", checkManager, states{finished}, states{finished, ready}, "is finished"},
		{"one without quota", "patch", "status", checkManager, states{noQuota}, states{noQuota, ready}, "has no quota"},
		{"an inactive one", "patch", "status", checkManager, states{inactive}, states{inactive, ready}, "is not active"},
		{"a deleted one", "patch", "status", checkManager, states{deleting}, states{deleting, ready}, "is being deleted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			after := waiting(tc.after...)
			after.ResourceVersion = "10"
			// The log is in the order of completion, which need not be the order of the writes.
			log := append(line(t, operator, tc.verb, tc.subresource, tc.manager, after), line(t, "kueue", "update", "status", "", waiting(tc.before...))...)
			l, err := Read(bytes.NewReader(log))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(l.Forbidden(rules), "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMoves(t *testing.T) {
	first, second := waiting(on1), waiting(on2)
	second.ResourceVersion = "10"
	l, err := Read(bytes.NewReader(append(line(t, "kueue", "patch", "status", "", first), line(t, "kueue", "patch", "status", "", second)...)))
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Moves(); len(got) != 1 || got[0] != "team-a/job moved from cluster1 to cluster2" {
		t.Errorf("got %v", got)
	}
}

// A write that the apiserver gave up waiting for may have been made: what follows it
// rests on a state that the log does not show. One that a webhook refused was not.
func TestUnansweredWrites(t *testing.T) {
	for code, want := range map[int]int{http.StatusGatewayTimeout: 0, http.StatusInternalServerError: 1} {
		after := waiting(ready, annotated)
		after.ResourceVersion = "10"
		log := line(t, "kueue", "update", "status", "", waiting())
		lost := bytes.Replace(line(t, operator, "patch", "status", checkManager, nil), []byte(`"code":200`), fmt.Appendf(nil, `"code":%d`, code), 1)
		log = append(append(log, lost...), line(t, operator, "patch", "", checkManager, after)...)
		l, err := Read(bytes.NewReader(log))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Forbidden(rules); len(got) != want || l.Refused[operator][code] != 1 {
			t.Errorf("after a write answered by %d: %v, refused %v", code, got, l.Refused)
		}
	}
}
