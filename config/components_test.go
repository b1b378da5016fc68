package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// withComponents returns a temporary overlay that adds components to a folder, as the
// comment in the folder's kustomization describes.
func withComponents(t *testing.T, folder string, components ...string) string {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative := func(path string) string {
		r, err := filepath.Rel(overlay, filepath.Join(here, path))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	text := fmt.Sprintf("resources: [%s]\ncomponents:\n", relative(folder))
	for _, c := range components {
		text += fmt.Sprintf("- %s\n", relative(c))
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// exporterAccess is the access that a folder gives to the exporter, and its arguments.
type exporterAccess struct {
	roles int  // ClusterRoles and ClusterRoleBindings
	token bool // the pod has a service account token
	args  []string
	ports []string // egress ports of its network policies
}

// readAccess builds the folder and returns the exporter's access.
func readAccess(t *testing.T, folder string) exporterAccess {
	t.Helper()
	template := podTemplate(t, folder)
	r := exporterAccess{args: template.Spec.Containers[0].Args}
	r.token = template.Spec.AutomountServiceAccountToken != nil && *template.Spec.AutomountServiceAccountToken
	objects, _ := build(t, folder)
	for _, object := range objects {
		switch o := object.(type) {
		case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
			r.roles++
		case *networkingv1.NetworkPolicy:
			for _, e := range o.Spec.Egress {
				for _, p := range e.Ports {
					r.ports = append(r.ports, p.Port.String())
				}
			}
		}
	}
	return r
}

// TestPodOwnersComponent checks that the exporter has access to the API server only with
// the component pod-owners.
func TestPodOwnersComponent(t *testing.T) {
	for _, folder := range []string{"exporter", "exporter-tpu"} {
		t.Run(folder, func(t *testing.T) {
			r := readAccess(t, folder)
			if r.roles > 0 || r.token || slices.Contains(r.args, "--kubernetes-pod-owners") || slices.Contains(r.ports, "443") {
				t.Errorf("without pod-owners, the exporter has access to the API server: %+v", r)
			}
			r = readAccess(t, withComponents(t, folder, "exporter/pod-owners"))
			if r.roles != 2 || !r.token || !slices.Contains(r.args, "--kubernetes-pod-owners") || !slices.Contains(r.ports, "443") {
				t.Errorf("with pod-owners, the exporter has no access to the API server: %+v", r)
			}
		})
	}
}

// TestPluginMetricsComponent checks that the exporter has access to the TPU device
// plugin's port only with the component plugin-metrics.
func TestPluginMetricsComponent(t *testing.T) {
	isPluginFlag := func(arg string) bool { return strings.HasPrefix(arg, "--tpu-plugin-metrics=") }
	if r := readAccess(t, "exporter-tpu"); slices.ContainsFunc(r.args, isPluginFlag) || slices.Contains(r.ports, "2112") {
		t.Errorf("without plugin-metrics, the exporter has access to the device plugin: %+v", r)
	}
	folder := withComponents(t, "exporter-tpu", "exporter-tpu/plugin-metrics")
	r := readAccess(t, folder)
	if !slices.Contains(r.args, "--tpu-plugin-metrics=http://$(HOST_IP):2112/metrics") || !slices.Contains(r.ports, "2112") {
		t.Errorf("with plugin-metrics, the exporter has no access to the device plugin: %+v", r)
	}
	for _, e := range containers(t, folder)[0].Env {
		if e.Name == "HOST_IP" && e.ValueFrom.FieldRef.FieldPath == "status.hostIP" {
			return
		}
	}
	t.Error("the container has no environment variable HOST_IP with the node's address")
}
