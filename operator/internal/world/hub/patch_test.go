package hub

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestPatch(t *testing.T) {
	const (
		jsonPatch  = types.JSONPatchType
		mergePatch = types.MergePatchType
	)
	for _, tc := range []struct {
		name      string
		status    bool
		patchType types.PatchType
		patch     string
		isErr     func(error) bool
		change    func(*kueue.Workload)
	}{
		{"JSON patch of an entry of a list", true, jsonPatch,
			`[{"op":"replace","path":"/metadata/resourceVersion","value":"2"},{"op":"add","path":"/status/admissionChecks/1/state","value":"Ready"},{"op":"add","path":"/status/admissionChecks/1/message","value":"fits"}]`,
			nil, func(w *kueue.Workload) {
				w.Status.AdmissionChecks[1].State, w.Status.AdmissionChecks[1].Message = "Ready", "fits"
			}},
		{"JSON patch of a path that does not exist", true, jsonPatch,
			`[{"op":"replace","path":"/metadata/resourceVersion","value":"1"},{"op":"add","path":"/status/admissionChecks/7/state","value":"Ready"}]`, apierrors.IsInvalid, nil},
		{"JSON patch that removes a field", true, jsonPatch, `[{"op":"remove","path":"/status/admission"}]`, nil, func(w *kueue.Workload) { w.Status.Admission = nil }},
		{"JSON patch with a failing test", true, jsonPatch, `[{"op":"test","path":"/status/admission/clusterQueue","value":"x"}]`, apierrors.IsInvalid, nil},
		{"JSON patch of the main resource ignores the status", false, jsonPatch,
			`[{"op":"remove","path":"/status/admission"},{"op":"replace","path":"/spec/active","value":false}]`, nil, func(w *kueue.Workload) { *w.Spec.Active = false }},
		{"JSON patch of the status ignores the rest", true, jsonPatch,
			`[{"op":"replace","path":"/spec/active","value":false},{"op":"remove","path":"/metadata/labels"},{"op":"add","path":"/status/clusterName","value":"c"}]`, nil,
			func(w *kueue.Workload) { w.Status.ClusterName = new(string); *w.Status.ClusterName = "c" }},
		{"merge patch", false, mergePatch, `{"metadata":{"annotations":{"a":"b"},"labels":{"app":null}},"spec":{"active":false}}`, nil,
			func(w *kueue.Workload) {
				w.Annotations, w.Labels, *w.Spec.Active = map[string]string{"a": "b"}, nil, false
			}},
		{"merge patch of the status ignores annotations", true, mergePatch, `{"metadata":{"annotations":{"a":"b"}},"status":{"admission":null}}`, nil,
			func(w *kueue.Workload) { w.Status.Admission = nil }},
		{"merge patch that changes nothing", true, mergePatch, `{"status":{"admission":{"clusterQueue":"gpu"}}}`, nil, nil},
		{"broken patch", true, mergePatch, `[`, apierrors.IsBadRequest, nil},
		{"wrong type", false, mergePatch, `{"spec":{"active":"yes"}}`, apierrors.IsInvalid, nil},
		{"strategic merge patch", false, types.StrategicMergePatchType, `{}`, apierrors.IsBadRequest, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.create(newWorkload("job"))
			want := f.workload()
			f.takeEvents()
			patch := client.RawPatch(tc.patchType, []byte(tc.patch))
			sent := newWorkload("job")
			var err error
			if tc.status {
				err = f.client.Status().Patch(t.Context(), sent, patch)
			} else {
				err = f.client.Patch(t.Context(), sent, patch)
			}
			if tc.isErr != nil {
				if !tc.isErr(err) {
					t.Errorf("error %v", err)
				}
			} else {
				f.must(err)
				if diff := cmp.Diff(f.workload(), sent); diff != "" {
					t.Errorf("the response differs from the live object:\n%s", diff)
				}
			}
			live := f.workload()
			if events := f.takeEvents(); len(events) > 0 != (tc.change != nil) {
				t.Errorf("events %v", events)
			}
			if tc.change != nil {
				tc.change(want)
				want.ResourceVersion, want.Generation, want.ManagedFields = live.ResourceVersion, live.Generation, live.ManagedFields
			}
			if diff := cmp.Diff(want, live); diff != "" {
				t.Errorf("live object (-want +got):\n%s", diff)
			}
		})
	}
}
