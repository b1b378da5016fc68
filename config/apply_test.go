//go:build integration

package config_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// A real API server takes what users apply: schemas, pod security, authorization.
func TestManifestsOnAnAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, hub := serve(t, ocmCRDs(t)...)
	runtimeClass := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "nvidia"}, Handler: "nvidia"}
	if err := hub.Create(ctx, runtimeClass); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"default", "exporter", "exporter-tpu", with(t, "exporter", "exporter/pod-owners"), with(t, "exporter-tpu", "exporter-tpu/plugin-metrics"), "addon"} {
		apply(ctx, t, hub, folder)
	}
	admitted(ctx, t, hub, "operator", "plimsoll-system")
	admitted(ctx, t, hub, "exporter", "plimsoll-exporter")
	admitted(ctx, t, hub, "exporter-tpu", "plimsoll-exporter")
	allowed(ctx, t, hub)
}

// serve an apiserver with the CRDs of these folders.
func serve(t *testing.T, crds ...string) (*rest.Config, client.Client) {
	t.Helper()
	env := &envtest.Environment{CRDDirectoryPaths: crds, ErrorIfCRDPathMissing: true}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Stop() })
	hub, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return config, hub
}

// ocmCRDs are the folders of OCM's API that the add-on's objects need.
func ocmCRDs(t *testing.T) []string {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	var paths []string
	for _, p := range []string{"addon/v1alpha1", "cluster/v1beta1", "cluster/v1beta2"} {
		paths = append(paths, filepath.Join(dir, p))
	}
	return paths
}

// apply a folder as kubectl apply --server-side -k does; namespaces come first.
func apply(ctx context.Context, t *testing.T, hub client.Client, folder string) {
	_, documents := build(t, folder)
	for _, document := range documents {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			t.Errorf("%s: %s %s: %v", folder, u.GetKind(), u.GetName(), err)
		}
	}
}

// admitted: the namespace's pod security lets the pod in.
func admitted(ctx context.Context, t *testing.T, hub client.Client, folder, namespace string) {
	template := podTemplate(t, folder)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "trial-" + folder, Namespace: namespace}, Spec: template.Spec}
	if err := hub.Create(ctx, pod); err != nil {
		t.Errorf("a pod of %s: %v", folder, err)
	}
	if namespace != "plimsoll-system" {
		return
	}
	privileged := true
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: namespace}, Spec: *template.Spec.DeepCopy()}
	pod.Spec.Containers[0].SecurityContext.Privileged = &privileged
	pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = &privileged
	if err := hub.Create(ctx, pod); !apierrors.IsForbidden(err) {
		t.Errorf("a privileged pod in %s: want it refused, got %v", namespace, err)
	}
}

// allowed asks the API server what the operator's service account may do.
func allowed(ctx context.Context, t *testing.T, hub client.Client) {
	type ask struct{ verb, group, resource, sub, namespace string }
	for a, want := range map[ask]bool{
		{"patch", "kueue.x-k8s.io", "workloads", "status", "team-a"}:                                true,
		{"patch", "kueue.x-k8s.io", "admissionchecks", "status", ""}:                                true,
		{"create", "kueue.x-k8s.io", "multikueueconfigs", "", ""}:                                   true,
		{"patch", "cluster.open-cluster-management.io", "addonplacementscores", "status", "worker"}: true,
		{"create", "events.k8s.io", "events", "", "team-a"}:                                         true,
		{"update", "coordination.k8s.io", "leases", "", "plimsoll-system"}:                          true,
		{"create", "", "events", "", "plimsoll-system"}:                                             true,
		{"create", "authentication.k8s.io", "tokenreviews", "", ""}:                                 true,
		{"list", "", "secrets", "", "plimsoll-system"}:                                              true,
		{"list", "", "secrets", "", "kueue-system"}:                                                 false,
		{"create", "", "secrets", "", "plimsoll-system"}:                                            false,
		{"delete", "kueue.x-k8s.io", "workloads", "", "team-a"}:                                     false,
		{"delete", "kueue.x-k8s.io", "multikueueclusters", "", ""}:                                  false,
		{"update", "coordination.k8s.io", "leases", "", "kube-system"}:                              false,
		{"create", "", "pods", "", "plimsoll-system"}:                                               false,
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:plimsoll-system:plimsoll-operator",
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.verb, Group: a.group, Resource: a.resource, Subresource: a.sub, Namespace: a.namespace,
			},
		}}
		if err := hub.Create(ctx, review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != want {
			t.Errorf("may the operator %s %s/%s in %q: %v, want %v", a.verb, a.group, a.resource, a.namespace, review.Status.Allowed, want)
		}
	}
}
