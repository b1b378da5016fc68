package hubstate

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Only the shipped policy makes the label of a LocalQueue mean anything.
func TestDecidedFirst(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "gate-first", "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policy, binding, ok := strings.Cut(string(text), "\n---\n")
	if !ok {
		t.Fatal("config/gate-first/policy.yaml must have a policy and a binding")
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	local := func(namespace, queue, label string) *kueue.LocalQueue {
		return &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gpu", Labels: map[string]string{v1alpha1.GateFirst: label}}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queue)}}
	}
	for _, tc := range []struct {
		name    string
		objects []string
		want    map[string]bool
	}{
		{"no policy", nil, nil},
		{"policy without binding", []string{policy}, nil},
		{"policy and binding", []string{policy, binding}, map[string]bool{"all": true, "part": false, "none": false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(local("a", "all", "true"), local("b", "all", "true"), local("c", "part", "true"), local("d", "part", ""), local("e", "part", "true"), local("f", "none", ""))
			for _, manifest := range tc.objects {
				hub = hub.WithRuntimeObjects(decode(t, manifest))
			}
			if got, err := DecidedFirst(t.Context(), hub.Build()); err != nil || !maps.Equal(got, tc.want) {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}
