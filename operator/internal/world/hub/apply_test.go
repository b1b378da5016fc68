package hub

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	appliedOp = metav1.ManagedFieldsOperationApply
	updatedOp = metav1.ManagedFieldsOperationUpdate
)

// statusWrite is a write of the status of the workload by a manager: an apply, or a merge patch.
type statusWrite struct {
	manager, apply, patch string
}

func (f *fixture) write(w statusWrite) error {
	f.Helper()
	if w.patch != "" {
		return f.client.Status().Patch(f.Context(), newWorkload("job"), client.RawPatch(types.MergePatchType, []byte(w.patch)), client.FieldOwner(w.manager))
	}
	return f.client.Status().Apply(f.Context(), client.ApplyConfigurationFromUnstructured(workloadApply(f.T, w.apply)), client.FieldOwner(w.manager), client.ForceOwnership)
}

func TestApply(t *testing.T) {
	const admitted = `{"admission":{"clusterQueue":"gpu","podSetAssignments":[{"name":"main"}]},
		"conditions":[{"type":"QuotaReserved","status":"True","reason":"QuotaReserved","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]`
	for _, tc := range []struct {
		name   string
		writes []statusWrite
		want   string
		// owned are the sets of managers, as "manager Operation".
		owned map[string]string
	}{
		{"sets fields", []statusWrite{{manager: "kueue-admission", apply: admitted + `}`}}, admitted + `}`,
			map[string]string{"kueue-admission Apply": `{"f:status":{"f:admission":{"f:clusterQueue":{},"f:podSetAssignments":{"k:{\"name\":\"main\"}":{".":{},"f:name":{}}}},` +
				`"f:conditions":{"k:{\"type\":\"QuotaReserved\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}}}}`}},
		{"the nomination alone removes the quota", []statusWrite{
			{manager: "kueue-admission", apply: admitted + `}`}, {manager: "kueue-admission", apply: `{"nominatedClusterNames":["a"]}`},
		}, `{"nominatedClusterNames":["a"]}`, map[string]string{"kueue-admission Apply": `{"f:status":{"f:nominatedClusterNames":{}}}`}},
		{"all fields with the nomination keep the quota", []statusWrite{
			{manager: "kueue-admission", apply: admitted + `}`}, {manager: "kueue-admission", apply: admitted + `,"nominatedClusterNames":["a"]}`},
		}, admitted + `,"nominatedClusterNames":["a"]}`, nil},
		{"the nomination by another manager keeps the quota and survives Kueue's apply", []statusWrite{
			{manager: "kueue-admission", apply: admitted + `}`},
			{manager: "plimsoll-dispatch", apply: `{"nominatedClusterNames":["a"]}`},
			{manager: "kueue-admission", apply: `{"clusterName":"a"}`},
		}, `{"clusterName":"a","nominatedClusterNames":["a"]}`, map[string]string{"plimsoll-dispatch Apply": `{"f:status":{"f:nominatedClusterNames":{}}}`}},
		{"a field of two managers stays until both leave it out", []statusWrite{
			{manager: "a", apply: `{"clusterName":"c"}`}, {manager: "b", apply: `{"clusterName":"c"}`}, {manager: "a", apply: `{}`},
		}, `{"clusterName":"c"}`, map[string]string{"a Apply": `{"f:status":{}}`, "b Apply": `{"f:status":{"f:clusterName":{}}}`}},
		{"a field of two managers goes with the second", []statusWrite{
			{manager: "a", apply: `{"clusterName":"c"}`}, {manager: "b", apply: `{"clusterName":"c"}`}, {manager: "a", apply: `{}`}, {manager: "b", apply: `{}`},
		}, `{}`, map[string]string{"b Apply": `{"f:status":{}}`}},
		{"another value takes the field from the other manager", []statusWrite{
			{manager: "a", apply: `{"clusterName":"c"}`}, {manager: "b", apply: `{"clusterName":"d"}`}, {manager: "a", apply: `{}`},
		}, `{"clusterName":"d"}`, map[string]string{"a Apply": `{"f:status":{}}`, "b Apply": `{"f:status":{"f:clusterName":{}}}`}},
		{"an update takes the changed fields of an item only", []statusWrite{
			{manager: "kueue-admission", apply: `{"admissionChecks":[{"name":"x","state":"Pending","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"},{"name":"y","state":"Pending","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`},
			{manager: "plimsoll-gate", patch: `{"status":{"admissionChecks":[{"name":"x","state":"Ready","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"},{"name":"y","state":"Pending","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`},
		}, `{"admissionChecks":[{"name":"x","state":"Ready","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"},{"name":"y","state":"Pending","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`,
			map[string]string{
				"kueue-admission Apply": `{"f:status":{"f:admissionChecks":{"k:{\"name\":\"x\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:name":{}},"k:{\"name\":\"y\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:name":{},"f:state":{}}}}}`,
				"plimsoll-gate Update":  `{"f:status":{"f:admissionChecks":{"k:{\"name\":\"x\"}":{"f:state":{}}}}}`,
			}},
		{"an item of another manager stays", []statusWrite{
			{manager: "a", apply: `{"admissionChecks":[{"name":"x","state":"Pending","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`},
			{manager: "b", apply: `{"admissionChecks":[{"name":"y","state":"Ready","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`},
			{manager: "a", apply: `{}`},
		}, `{"admissionChecks":[{"name":"y","state":"Ready","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`, nil},
		{"an update that removes a field takes it from its owner", []statusWrite{
			{manager: "a", apply: `{"clusterName":"c","nominatedClusterNames":["c"]}`}, {manager: "b", patch: `{"status":{"clusterName":null}}`},
		}, `{"nominatedClusterNames":["c"]}`, map[string]string{"a Apply": `{"f:status":{"f:nominatedClusterNames":{}}}`, "b Update": ""}},
		{"a field that an update set stays when the same manager applies without it", []statusWrite{
			{manager: "a", patch: `{"status":{"clusterName":"c"}}`}, {manager: "a", apply: `{"nominatedClusterNames":["c"]}`}, {manager: "a", apply: `{}`},
		}, `{"clusterName":"c"}`, map[string]string{"a Update": `{"f:status":{"f:clusterName":{}}}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.must(f.client.Create(t.Context(), newWorkload("job")))
			for _, w := range tc.writes {
				f.must(f.write(w))
			}
			live := f.workload()
			text, err := json.Marshal(live.Status)
			f.must(err)
			if diff := cmp.Diff(parseJSON(t, tc.want), parseJSON(t, string(text))); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			for name, want := range tc.owned {
				for _, op := range []metav1.ManagedFieldsOperationType{appliedOp, updatedOp} {
					manager, isOp := strings.CutSuffix(name, " "+string(op))
					if got := ownedBy(live, manager, op, "status"); isOp && got != want {
						t.Errorf("fields of %s:\n%s\nwant:\n%s", name, got, want)
					}
				}
			}
		})
	}
}

func TestApplyErrors(t *testing.T) {
	f := newFixture(t)
	f.create(newWorkload("job"))
	apply := func(status string, opts ...client.SubResourceApplyOption) error {
		return f.client.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(workloadApply(t, status)), opts...)
	}
	f.must(apply(`{"clusterName":"a"}`, client.FieldOwner("a")))
	if err := apply(`{"clusterName":"b"}`, client.FieldOwner("b")); !apierrors.IsConflict(err) {
		t.Errorf("a field of another manager: %v", err)
	}
	f.must(apply(`{"clusterName":"a"}`, client.FieldOwner("b")))
	if err := apply(`{"unknown":"b"}`); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v", err)
	}
	if err := apply(`{"conditions":[{"status":"True"}]}`); !apierrors.IsBadRequest(err) {
		t.Errorf("an item without a key: %v", err)
	}
	other := workloadApply(t, `{}`)
	other.SetName("other")
	if err := f.client.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(other)); !apierrors.IsNotFound(err) {
		t.Errorf("status of an object that does not exist: %v", err)
	}
}

func TestApplyVersions(t *testing.T) {
	f := newFixture(t)
	f.create(newWorkload("job"))
	apply := workloadApply(t, `{"clusterName":"a"}`)
	f.must(f.client.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner("a")))
	if apply.GetResourceVersion() != f.workload().ResourceVersion || len(apply.GetManagedFields()) != 3 {
		t.Errorf("an apply must return the live object: %v", apply.Object["metadata"])
	}
	f.takeEvents()
	f.clock.Time = start.Add(time.Minute)
	f.must(f.write(statusWrite{manager: "a", apply: `{"clusterName":"a"}`}))
	if events := f.takeEvents(); len(events) != 0 {
		t.Errorf("an apply that changes neither fields nor owners must make no version: %v", events)
	}
	f.must(f.write(statusWrite{manager: "b", apply: `{"clusterName":"a"}`}))
	if events := f.takeEvents(); len(events) != 1 {
		t.Errorf("an apply by another owner makes a version: %v", events)
	}
	for _, m := range f.workload().ManagedFields {
		want := start.Truncate(time.Second)
		if m.Manager == "b" {
			want = want.Add(time.Minute)
		}
		if !m.Time.Time.Equal(want) {
			t.Errorf("%s %s has the time %s, want %s", m.Manager, m.Operation, m.Time, want)
		}
	}
}

func TestApplyOfMainResource(t *testing.T) {
	f := newFixture(t)
	apply := func(object string) {
		t.Helper()
		u := &unstructured.Unstructured{Object: parseJSON(t, object)}
		u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
		u.SetNamespace("team")
		u.SetName("job")
		f.must(f.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("a"), client.ForceOwnership))
	}
	apply(`{"metadata":{"labels":{"a":"1","b":"2"}},"spec":{"queueName":"gpu","podSets":[{"name":"main","count":1}]},"status":{"clusterName":"ignored"}}`)
	if wl := f.workload(); wl.Spec.QueueName != "gpu" || wl.Labels["b"] != "2" || wl.Status.ClusterName != nil {
		t.Errorf("an apply must create the object without status: %+v", wl)
	}
	f.must(f.client.Patch(t.Context(), newWorkload("job"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"c":"3"}}}`))))
	apply(`{"metadata":{"labels":{"a":"1"}},"spec":{"podSets":[{"name":"main","count":2}]}}`)
	wl := f.workload()
	if diff := cmp.Diff(map[string]string{"a": "1", "c": "3"}, wl.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if wl.Spec.QueueName != "" || wl.Spec.PodSets[0].Count != 2 || wl.Generation != 2 {
		t.Errorf("spec %+v, generation %d", wl.Spec, wl.Generation)
	}
}

func TestApplyOfScores(t *testing.T) {
	f := newFixture(t)
	f.must(f.client.Create(t.Context(), &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "fleet"}}))
	live := &clusterv1alpha1.AddOnPlacementScore{}
	apply := func(status string) {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{"status": parseJSON(t, status)}}
		u.SetAPIVersion("cluster.open-cluster-management.io/v1alpha1")
		u.SetKind("AddOnPlacementScore")
		u.SetNamespace("c1")
		u.SetName("fleet")
		f.must(f.client.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("plimsoll-scores"), client.ForceOwnership))
		f.must(f.client.Get(t.Context(), types.NamespacedName{Namespace: "c1", Name: "fleet"}, live))
	}
	apply(`{"validUntil":"2026-01-02T04:00:00Z","scores":[{"name":"free","value":3},{"name":"load","value":-5}]}`)
	want := `{"f:status":{"f:scores":{"k:{\"name\":\"free\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"load\"}":{".":{},"f:name":{},"f:value":{}}},"f:validUntil":{}}}`
	if got := ownedBy(live, "plimsoll-scores", appliedOp, "status"); got != want {
		t.Errorf("fields:\n%s\nwant:\n%s", got, want)
	}
	apply(`{"validUntil":"2026-01-02T05:00:00Z","scores":[{"name":"load","value":7}]}`)
	if diff := cmp.Diff([]clusterv1alpha1.AddOnPlacementScoreItem{{Name: "load", Value: 7}}, live.Status.Scores); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
}

func TestRecordAsApply(t *testing.T) {
	f := newFixture(t)
	f.must(f.server.RecordAsApply("kueue-admission", &kueue.Workload{}, "admission", "conditions[QuotaReserved]", "nominatedClusterNames", "clusterName"))
	f.must(f.client.Create(t.Context(), newWorkload("job")))
	update := func(change func(*kueue.Workload) bool) {
		t.Helper()
		_, err := Update(f.server, key("job"), "kueue-admission", change)
		f.must(err)
	}
	update(func(wl *kueue.Workload) bool {
		wl.Status = newWorkload("job").Status
		wl.Spec.Priority = new(int32)
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: "PodsReady", Status: "False", Reason: "x", LastTransitionTime: metav1.NewTime(start)})
		return true
	})
	live := f.workload()
	for _, tc := range []struct {
		operation metav1.ManagedFieldsOperationType
		part      string
		want      string
	}{
		{appliedOp, "status", `{"f:status":{"f:admission":{"f:clusterQueue":{},"f:podSetAssignments":{"k:{\"name\":\"main\"}":{".":{},"f:name":{}}}},` +
			`"f:conditions":{"k:{\"type\":\"QuotaReserved\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}}}}`},
		{updatedOp, "status", `{"f:status":{"f:admissionChecks":{"k:{\"name\":\"multikueue\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:name":{},"f:state":{}},` +
			`"k:{\"name\":\"plimsoll\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:name":{},"f:state":{}}},` +
			`"f:conditions":{"k:{\"type\":\"PodsReady\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}}}}`},
		{updatedOp, "", `{"f:spec":{"f:priority":{}}}`},
	} {
		if got := ownedBy(live, "kueue-admission", tc.operation, tc.part); got != tc.want {
			t.Errorf("%s of %q:\n%s\nwant:\n%s", tc.operation, tc.part, got, tc.want)
		}
	}

	// The operator nominates alone, and Kueue's fields go.
	f.must(f.write(statusWrite{manager: "kueue-admission", apply: `{"nominatedClusterNames":["a"]}`}))
	live = f.workload()
	if apimeta.FindStatusCondition(live.Status.Conditions, "QuotaReserved") != nil || live.Status.Admission != nil || len(live.Status.AdmissionChecks) != 2 || len(live.Status.Conditions) != 1 {
		t.Errorf("status %+v", live.Status)
	}
	// Kueue removes a nomination of another manager, and the record follows.
	f.must(f.write(statusWrite{manager: "plimsoll-dispatch", apply: `{"nominatedClusterNames":["b"]}`}))
	update(func(wl *kueue.Workload) bool { wl.Status.NominatedClusterNames = nil; return true })
	live = f.workload()
	if len(live.Status.NominatedClusterNames) != 0 || ownedBy(live, "plimsoll-dispatch", appliedOp, "status") != "" || ownedBy(live, "kueue-admission", appliedOp, "status") != "" {
		t.Errorf("managedFields %v", live.ManagedFields)
	}
	for _, path := range []string{"unknown", "admission[x]", "conditions[x].unknown"} {
		if err := f.server.RecordAsApply("m", &kueue.Workload{}, path); err == nil {
			t.Errorf("path %s must be refused", path)
		}
	}
}

func TestUpdateHelper(t *testing.T) {
	f := newFixture(t)
	f.create(newWorkload("job"))
	if found, err := Update(f.server, key("unknown"), "m", func(*kueue.Workload) bool { return true }); found || !apierrors.IsNotFound(err) {
		t.Errorf("unknown object: %v %v", found, err)
	}
	if done, err := Update(f.server, key("job"), "m", func(*kueue.Workload) bool { return false }); done || err != nil {
		t.Errorf("refused change: %v %v", done, err)
	}
	calls := 0
	done, err := Update(f.server, key("job"), "m", func(wl *kueue.Workload) bool {
		if calls++; calls == 1 {
			// Another writer comes between the read and the write.
			_, err := Update(f.server, key("job"), "other", func(wl *kueue.Workload) bool { wl.Labels["other"] = "x"; return true })
			f.must(err)
		}
		wl.Spec.QueueName, wl.Status.ClusterName = "x", &wl.Name
		return true
	})
	live := Get[*kueue.Workload](f.server, key("job"))
	if !done || err != nil || calls != 2 || live.Labels["other"] != "x" || live.Spec.QueueName != "x" || *live.Status.ClusterName != "job" {
		t.Errorf("%v %v after %d calls: %+v", done, err, calls, live)
	}
	if Get[*kueue.Workload](f.server, key("unknown")) != nil {
		t.Error("an unknown object must be nil")
	}
}

// The live workload has what the operator's nomination reads: unstructured content with managedFields.
func TestUnstructured(t *testing.T) {
	f := newFixture(t)
	f.create(newWorkload("job"))
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	f.must(f.client.Get(t.Context(), key("job"), u))
	if u.GetKind() != "Workload" || u.GetAPIVersion() != "kueue.x-k8s.io/v1beta2" || len(u.GetManagedFields()) != 2 || u.GetResourceVersion() != "2" {
		t.Errorf("object %v", u.Object)
	}
	f.must(f.client.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":false}}`))))
	if active, _, _ := unstructured.NestedBool(u.Object, "spec", "active"); active || u.GetResourceVersion() != "3" {
		t.Errorf("the response of a patch must be the live object: %v", u.Object)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("WorkloadList"))
	f.must(f.client.List(t.Context(), list))
	if len(list.Items) != 1 || list.Items[0].GetKind() != "Workload" {
		t.Errorf("list %v", list.Items)
	}
	created := &unstructured.Unstructured{Object: parseJSON(t, `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"namespace":"team","name":"second"},"spec":{"queueName":"q"}}`)}
	f.must(f.client.Create(t.Context(), created))
	if created.GetUID() == "" {
		t.Error("the response of a create must be the live object")
	}
}
