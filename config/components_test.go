package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// withComponents returns a new folder with a kustomization of the folder and the
// components.
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

// access describes which services an exporter uses and may use.
type access struct {
	roles int  // number of ClusterRoles and their bindings
	token bool // a service account token is mounted
	args  []string
	ports []string // allowed by the network policy
}

func exporterAccess(t *testing.T, folder string) access {
	t.Helper()
	template := podTemplate(t, folder)
	a := access{args: template.Spec.Containers[0].Args}
	a.token = template.Spec.AutomountServiceAccountToken != nil && *template.Spec.AutomountServiceAccountToken
	objects, _ := buildFolder(t, folder)
	for _, object := range objects {
		switch o := object.(type) {
		case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
			a.roles++
		case *networkingv1.NetworkPolicy:
			for _, e := range o.Spec.Egress {
				for _, p := range e.Ports {
					a.ports = append(a.ports, p.Port.String())
				}
			}
		}
	}
	return a
}

// Without the component pod-owners the exporter does not use the API server and has no
// access. With the component it reads pod owners and has access.
func TestPodOwnersNeedAPIServerAccess(t *testing.T) {
	for _, folder := range []string{"exporter", "exporter-tpu", "exporter-amd"} {
		t.Run(folder, func(t *testing.T) {
			a := exporterAccess(t, folder)
			if a.roles > 0 || a.token || slices.Contains(a.args, "--kubernetes-pod-owners") || slices.Contains(a.ports, "443") {
				t.Errorf("access to the API server without pod-owners: %+v", a)
			}
			a = exporterAccess(t, withComponents(t, folder, "exporter/pod-owners"))
			if a.roles != 2 || !a.token || !slices.Contains(a.args, "--kubernetes-pod-owners") || !slices.Contains(a.ports, "443") {
				t.Errorf("no access to the API server with pod-owners: %+v", a)
			}
		})
	}
}

// The component claim-shares grants what the exporter needs to read claims by name and the slices of
// its node, and nothing else. It can be combined with pod-owners.
func TestClaimSharesNeedAPIServerAccess(t *testing.T) {
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"list", "watch"}},
	}
	for _, folder := range []string{"exporter", "exporter-tpu", "exporter-amd"} {
		t.Run(folder, func(t *testing.T) {
			if a := exporterAccess(t, folder); slices.Contains(a.args, "--kubernetes-claim-shares") {
				t.Errorf("claims are read without claim-shares: %+v", a)
			}
			both := withComponents(t, folder, "exporter/pod-owners", "exporter/claim-shares")
			for component, roles := range map[string]int{withComponents(t, folder, "exporter/claim-shares"): 2, both: 4} {
				a := exporterAccess(t, component)
				if a.roles != roles || !a.token || !slices.Contains(a.args, "--kubernetes-claim-shares") || !slices.Contains(a.ports, "443") {
					t.Errorf("no access to the API server with claim-shares: %+v", a)
				}
				objects, _ := buildFolder(t, component)
				for _, object := range objects {
					if role, ok := object.(*rbacv1.ClusterRole); ok && role.Name == "plimsoll-exporter-claim-shares" {
						if diff := cmp.Diff(want, role.Rules); diff != "" {
							t.Errorf("(-want +got):\n%s", diff)
						}
					}
				}
			}
		})
	}
}

// Only with the component plugin-metrics the exporter scrapes the TPU device plugin and
// the network policy allows it.
func TestTPUPluginMetricsNeedPluginAccess(t *testing.T) {
	isPluginFlag := func(arg string) bool { return strings.HasPrefix(arg, "--tpu-plugin-metrics=") }
	if a := exporterAccess(t, "exporter-tpu"); slices.ContainsFunc(a.args, isPluginFlag) || slices.Contains(a.ports, "2112") {
		t.Errorf("access to the plugin without plugin-metrics: %+v", a)
	}
	folder := withComponents(t, "exporter-tpu", "exporter-tpu/plugin-metrics")
	a := exporterAccess(t, folder)
	if !slices.Contains(a.args, "--tpu-plugin-metrics=http://$(HOST_IP):2112/metrics") || !slices.Contains(a.ports, "2112") {
		t.Errorf("no access to the plugin with plugin-metrics: %+v", a)
	}
	for _, e := range containers(t, folder)[0].Env {
		if e.Name == "HOST_IP" && e.ValueFrom.FieldRef.FieldPath == "status.hostIP" {
			return
		}
	}
	t.Error("HOST_IP is not set to the address of the node")
}

// With web-config the exporter serves TLS and requires a password, which probes cannot send.
func TestWebConfigProtectsTheMetrics(t *testing.T) {
	for _, folder := range []string{"exporter", "exporter-tpu", "exporter-amd"} {
		t.Run(folder, func(t *testing.T) {
			template := podTemplate(t, withComponents(t, folder, "exporter/web-config"))
			c := template.Spec.Containers[0]
			mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.MountPath == "/etc/plimsoll/web" && m.ReadOnly && slices.ContainsFunc(template.Spec.Volumes, func(v corev1.Volume) bool {
					return v.Name == m.Name && v.Secret != nil && v.Secret.SecretName == "plimsoll-exporter-web"
				})
			})
			if !mounted || !slices.Contains(c.Args, "--web.config.file=/etc/plimsoll/web/web.yml") {
				t.Errorf("the web configuration is not used: %v, %v", c.Args, c.VolumeMounts)
			}
			for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
				if p.HTTPGet != nil || p.TCPSocket == nil || p.TCPSocket.Port.String() != "metrics" {
					t.Errorf("a probe without a password: %+v", p.ProbeHandler)
				}
			}
		})
	}
}

// The operator serves the certificate that cert-manager writes, and Prometheus verifies it.
func TestCertManagerIssuesTheMetricsCertificate(t *testing.T) {
	objects := append(buildUntyped(t, withComponents(t, "default", "operator/cert-manager")), buildUntyped(t, withComponents(t, "prometheus/hub", "prometheus/hub/cert-manager"))...)
	var deployment appsv1.Deployment
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &deployment); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := deployment.Spec.Template.Spec
	if len(pod.Volumes) != 1 || len(pod.Containers[0].VolumeMounts) != 1 || !slices.Contains(pod.Containers[0].Args, "--metrics-cert-dir="+pod.Containers[0].VolumeMounts[0].MountPath) {
		t.Fatalf("the certificate is not used: %+v", pod)
	}
	secret := pod.Volumes[0].Secret.SecretName
	field := func(kind string, path ...string) any {
		for _, o := range objects {
			if v, found, _ := unstructured.NestedFieldNoCopy(o.Object, path...); o.GetKind() == kind && found {
				return v
			}
		}
		t.Errorf("no %s has %v", kind, path)
		return nil
	}
	if got := field("Certificate", "spec", "secretName"); got != secret {
		t.Errorf("cert-manager writes Secret %v, and the operator reads %s", got, secret)
	}
	names, endpoints := fmt.Sprint(field("Certificate", "spec", "dnsNames")), fmt.Sprint(field("ServiceMonitor", "spec", "endpoints"))
	for _, want := range []string{"name:" + secret, "serverName:" + strings.Trim(names, "[]")} {
		if !strings.Contains(endpoints, want) || strings.Contains(endpoints, "insecureSkipVerify") {
			t.Errorf("%q is missing from the endpoints, or they verify nothing: %s", want, endpoints)
		}
	}
}

// Trials need a flag and a role that the operator does not have otherwise.
func TestTrialsAreAComponent(t *testing.T) {
	isGranted := func(objects []*unstructured.Unstructured) (args, role bool) {
		for _, o := range objects {
			text := fmt.Sprint(o.Object)
			args = args || o.GetKind() == "Deployment" && strings.Contains(text, "--trials")
			role = role || o.GetKind() == "ClusterRole" && strings.HasPrefix(o.GetName(), "plimsoll-operator") && strings.Contains(text, "jobs") && strings.Contains(text, "batch")
		}
		return args, role
	}
	if args, role := isGranted(buildUntyped(t, "default")); args || role {
		t.Errorf("without the component: flag %v, role %v", args, role)
	}
	if args, role := isGranted(buildUntyped(t, withComponents(t, "default", "trials"))); !args || !role {
		t.Errorf("with the component: flag %v, role %v", args, role)
	}
}
