package workload

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// templateReader serves one ResourceClaimTemplate, team-a/half, or an error.
type templateReader struct {
	client.Reader
	err   error
	reads int
}

func (r *templateReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	r.reads++
	if r.err != nil {
		return r.err
	}
	if key.String() != "team-a/half" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "resourceclaimtemplates"}, key.Name)
	}
	object.(*resourcev1.ResourceClaimTemplate).Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi"), "cores": resource.MustParse("30")}}}}}
	return nil
}

// claiming returns a workload whose pods claim a device by a template, and for which Kueue reserved a
// device.
func claiming(template string) *kueue.Workload {
	set := kueue.PodSet{Name: "main", Count: 1}
	set.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To(template)}}
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{set}}}
	wl.Namespace = "team-a"
	wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: ptr.To[int32](1), ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}
	return wl
}

// Only a gate that fits shares reads templates, and each of them once a minute. An error ends the
// reconciliation, and a template or API that does not exist means unused devices.
func TestObserveClaimTemplates(t *testing.T) {
	whole := &shape.Share{MemoryPercent: 100, CorePercent: 100, Claimed: true}
	for _, tc := range []struct {
		name, fit, template string
		err                 error
		want                *shape.Share
		reads               int
		isError             bool
	}{
		{name: "a gate for shares", fit: "free / $share_memory", template: "half", want: &shape.Share{Memory: 10 << 30, CorePercent: 30, Claimed: true}, reads: 1},
		{name: "another gate", fit: "free", template: "half"},
		{name: "no template", fit: "free / $share_memory", template: "none", want: whole, reads: 1},
		{name: "no API", fit: "free / $share_memory", template: "half", err: &apimeta.NoKindMatchError{}, want: whole, reads: 1},
		{name: "an error", fit: "free / $share_memory", template: "half", err: errors.New("no connection"), reads: 3, isError: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reader := &templateReader{err: tc.err}
			r := &Reconciler{live: reader}
			for _, after := range []time.Duration{0, time.Second, templateLifetime - time.Second} {
				s := &lifecycle.Situation{Workload: claiming(tc.template), Gate: lifecycle.Gate{Gate: gatestate.Gate{Spec: v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: tc.fit}}}}, Now: fixture.Noon.Add(after)}
				s.Key = client.ObjectKeyFromObject(s.Workload)
				if err := r.observeClaimTemplates(t.Context(), s); (err != nil) != tc.isError {
					t.Fatal(err)
				}
				if tc.isError {
					continue
				}
				if diff := cmp.Diff(tc.want, s.FactsUnder(s.Workload, &s.Gate.Spec).PodSets[0].Share); diff != "" {
					t.Errorf("share (-want +got):\n%s", diff)
				}
			}
			if reader.reads != tc.reads {
				t.Errorf("%d reads, want %d", reader.reads, tc.reads)
			}
			s := &lifecycle.Situation{Workload: claiming(tc.template), Gate: lifecycle.Gate{Gate: gatestate.Gate{Spec: v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: tc.fit}}}}, Now: fixture.Noon.Add(2 * templateLifetime)}
			s.Key = client.ObjectKeyFromObject(s.Workload)
			if err := r.observeClaimTemplates(t.Context(), s); (err != nil) != tc.isError || tc.reads > 0 && reader.reads != tc.reads+1 {
				t.Errorf("%d reads after the lifetime, %v", reader.reads, err)
			}
		})
	}
}
