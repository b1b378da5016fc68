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

// A real API server accepts the manifests: their schemas, the pod security of their
// namespaces, and the permissions of the operator.
func TestAPIServerAcceptsManifests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, hub := startAPIServer(t, ocmCRDs(t)...)
	runtimeClass := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "nvidia"}, Handler: "nvidia"}
	if err := hub.Create(ctx, runtimeClass); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"crd", "default", "guard", "exporter", "exporter-tpu", "exporter-amd", withComponents(t, "exporter", "exporter/pod-owners", "exporter/claim-shares"), withComponents(t, "exporter-tpu", "exporter-tpu/plugin-metrics"), "addon"} {
		applyFolder(ctx, t, hub, folder)
	}
	checkPodSecurity(ctx, t, hub, "operator", "plimsoll-system")
	checkPodSecurity(ctx, t, hub, "exporter", "plimsoll-exporter")
	checkPodSecurity(ctx, t, hub, "exporter-tpu", "plimsoll-exporter")
	checkPodSecurity(ctx, t, hub, "exporter-amd", "plimsoll-exporter")
	checkOperatorPermissions(ctx, t, hub)
}

// startAPIServer runs a kube-apiserver with the CRDs of the folders.
func startAPIServer(t *testing.T, crds ...string) (*rest.Config, client.Client) {
	t.Helper()
	return startEnvironment(t, &envtest.Environment{CRDDirectoryPaths: crds, ErrorIfCRDPathMissing: true})
}

func startEnvironment(t *testing.T, env *envtest.Environment) (*rest.Config, client.Client) {
	t.Helper()
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

// ocmCRDs returns the folders with the OCM CRDs that the add-on needs.
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

// applyFolder does the same as `kubectl apply --server-side -k`. Kustomize puts
// namespaces first.
func applyFolder(ctx context.Context, t *testing.T, hub client.Client, folder string) {
	_, documents := buildFolder(t, folder)
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

// checkPodSecurity checks that the namespace admits the folder's pod. The operator's
// namespace must refuse a privileged pod.
func checkPodSecurity(ctx context.Context, t *testing.T, hub client.Client, folder, namespace string) {
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

// checkOperatorPermissions checks the permissions of the operator's service account.
func checkOperatorPermissions(ctx context.Context, t *testing.T, hub client.Client) {
	type access struct{ verb, group, resource, sub, namespace string }
	for a, want := range map[access]bool{
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
			t.Errorf("permission of the operator to %s %s/%s in %q: %v, want %v", a.verb, a.group, a.resource, a.namespace, review.Status.Allowed, want)
		}
	}
}
