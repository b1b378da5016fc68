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

// with components added to a folder's own kustomization, as its comment says.
func with(t *testing.T, folder string, components ...string) string {
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

// reach is what a folder's exporter may ask of others, and what it is told to.
type reach struct {
	roles       int
	token       bool
	args, ports []string
}

func reachOf(t *testing.T, folder string) reach {
	t.Helper()
	template := podTemplate(t, folder)
	r := reach{args: template.Spec.Containers[0].Args}
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

// By itself the exporter asks nothing of the API server, and has no right to; with
// the component it asks for owners, may, and gets there.
func TestOwnersOfPodsAreForThoseWhoAsk(t *testing.T) {
	for _, folder := range []string{"exporter", "exporter-tpu"} {
		r := reachOf(t, folder)
		if r.roles > 0 || r.token || slices.Contains(r.args, "--kubernetes-pod-owners") || slices.Contains(r.ports, "443") {
			t.Errorf("%s by itself reaches the API server: %+v", folder, r)
		}
		r = reachOf(t, with(t, folder, "exporter/pod-owners"))
		if r.roles != 2 || !r.token || !slices.Contains(r.args, "--kubernetes-pod-owners") || !slices.Contains(r.ports, "443") {
			t.Errorf("%s with pod-owners does not reach the API server: %+v", folder, r)
		}
	}
}

// The TPU device plugin's port is open where it is asked, and nowhere else.
func TestThePluginOfTPUsIsForThoseWhoAsk(t *testing.T) {
	asks := func(arg string) bool { return strings.HasPrefix(arg, "--tpu-plugin-metrics=") }
	if r := reachOf(t, "exporter-tpu"); slices.ContainsFunc(r.args, asks) || slices.Contains(r.ports, "2112") {
		t.Errorf("by itself it asks the plugin: %+v", r)
	}
	folder := with(t, "exporter-tpu", "exporter-tpu/plugin-metrics")
	r := reachOf(t, folder)
	if !slices.Contains(r.args, "--tpu-plugin-metrics=http://$(HOST_IP):2112/metrics") || !slices.Contains(r.ports, "2112") {
		t.Errorf("it does not ask the plugin: %+v", r)
	}
	for _, e := range containers(t, folder)[0].Env {
		if e.Name == "HOST_IP" && e.ValueFrom.FieldRef.FieldPath == "status.hostIP" {
			return
		}
	}
	t.Error("the node's address is not in the environment")
}
