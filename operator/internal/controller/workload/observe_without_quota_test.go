package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// A decision before the quota is for the flavor that Kueue would assign.
func TestExpectedAdmission(t *testing.T) {
	flavor := func(name, model string) *kueue.ResourceFlavor {
		return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"model": model}}}
	}
	queue, local := clusterQueue("gpu", ""), localQueue("gpu", "gpu")
	queue.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"nvidia.com/gpu"}, Flavors: []kueue.FlavorQuotas{{Name: "h100"}, {Name: "a100"}}}}
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(&queue, &local, flavor("h100", "H100"), flavor("a100", "A100")).Build()}
	for _, tc := range []struct {
		name     string
		selector map[string]string
		queue    string
		want     kueue.ResourceFlavorReference
	}{
		{"any nodes", nil, "gpu", "h100"},
		{"nodes of the second flavor", map[string]string{"model": "A100"}, "gpu", "a100"},
		{"nodes that both flavors may have", map[string]string{"zone": "a"}, "gpu", "h100"},
		{"nodes of no flavor", map[string]string{"model": "B200"}, "gpu", ""},
		{"queue that does not exist", nil, "other", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := fixture.PendingWorkload(fixture.Noon)
			wl.Spec.QueueName = kueue.LocalQueueName(tc.queue)
			wl.Spec.PodSets[0].Template.Spec.NodeSelector = tc.selector
			admission, err := r.expectedAdmission(t.Context(), wl)
			if err != nil || (admission != nil) != (tc.queue == "gpu") {
				t.Fatalf("got %+v, %v", admission, err)
			}
			if admission != nil && admission.PodSetAssignments[0].Flavors["nvidia.com/gpu"] != tc.want {
				t.Errorf("got %v, want %s", admission.PodSetAssignments[0].Flavors, tc.want)
			}
		})
	}
}
