package hubstate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestClearsNominations(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "nomination", "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policy, binding, ok := strings.Cut(string(text), "\n---\n")
	if !ok {
		t.Fatal("config/nomination/policy.yaml must have a policy and a binding")
	}
	for _, tc := range []struct {
		name    string
		objects []string
		want    bool
	}{
		{"no policy", nil, false},
		{"policy and binding", []string{policy, binding}, true},
		{"policy without binding", []string{policy}, false},
		{"policy for another resource", []string{strings.ReplaceAll(policy, "workloads/status", "workloads"), binding}, false},
		{"policy for another field", []string{strings.ReplaceAll(policy, "nominatedClusterNames", "clusterName"), binding}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hub := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			for _, manifest := range tc.objects {
				hub = hub.WithRuntimeObjects(decode(t, manifest))
			}
			if got, err := ClearsNominations(t.Context(), hub.Build()); err != nil || got != tc.want {
				t.Errorf("got %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}

func TestClearsNominationsWithoutTheAPI(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"not served", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "MutatingAdmissionPolicy"}}},
		{"not readable", errors.New("forbidden")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hub := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return tc.err }}).Build()
			got, err := ClearsNominations(t.Context(), hub)
			if got || (err == nil) != meta.IsNoMatchError(tc.err) {
				t.Errorf("got %t, %v", got, err)
			}
		})
	}
}

func decode(t *testing.T, manifest string) runtime.Object {
	t.Helper()
	obj, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode([]byte(manifest), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}
