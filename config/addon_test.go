package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/config"
)

// A template contains the objects of the exporters for all accelerators, without network policies.
func TestAddOnTemplatesHaveTheObjectsOfTheExporters(t *testing.T) {
	for file, template := range config.AddOnTemplates {
		t.Run(file, func(t *testing.T) {
			folder := "exporter"
			if template.Component != "" {
				folder = withComponents(t, "exporter", template.Component)
			}
			var want []string
			for _, o := range slices.Concat(buildUntyped(t, folder), buildUntyped(t, "exporter-amd"), buildUntyped(t, "exporter-tpu")) {
				if o.GetKind() != "NetworkPolicy" {
					want = append(want, o.GetKind()+" "+o.GetName())
				}
			}
			var got []string
			for _, m := range addOnManifests(t, template.Name) {
				got = append(got, m.GetKind()+" "+m.GetName())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-exporters +add-on):\n%s", diff)
			}
		})
	}
}

// addOnManifests returns the manifests of an AddOnTemplate.
func addOnManifests(t *testing.T, name string) (manifests []*unstructured.Unstructured) {
	t.Helper()
	objects, _ := buildFolder(t, "addon")
	for _, object := range objects {
		if template, ok := object.(*addonv1alpha1.AddOnTemplate); ok && template.Name == name {
			for _, m := range template.Spec.AgentSpec.Workload.Manifests {
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal(m.Raw, &o.Object); err != nil {
					t.Fatal(err)
				}
				manifests = append(manifests, o)
			}
		}
	}
	return manifests
}

// Each component gives every DaemonSet of every template its arguments and a token, and adds its role.
func TestAddOnWithComponents(t *testing.T) {
	objects, _ := buildFolder(t, withComponents(t, "addon", "addon/pod-monitor", "addon/pod-owners", "addon/claim-shares"))
	templates := 0
	for _, object := range objects {
		template, ok := object.(*addonv1alpha1.AddOnTemplate)
		if !ok {
			continue
		}
		templates++
		sets, roles := 0, map[string]bool{}
		for _, m := range template.Spec.AgentSpec.Workload.Manifests {
			var manifest struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ Template corev1.PodTemplateSpec }
				RoleRef  struct{ Name string }
			}
			if err := yaml.Unmarshal(m.Raw, &manifest); err != nil {
				t.Fatal(err)
			}
			switch manifest.Kind {
			case "DaemonSet":
				sets++
				pod := manifest.Spec.Template.Spec
				if args := pod.Containers[0].Args; pod.AutomountServiceAccountToken == nil || !*pod.AutomountServiceAccountToken || !slices.Contains(args, "--kubernetes-pod-owners") || !slices.Contains(args, "--kubernetes-claim-shares") {
					t.Errorf("%s, DaemonSet %s: token %v, arguments %v", template.Name, manifest.Metadata.Name, pod.AutomountServiceAccountToken, args)
				}
			case "ClusterRoleBinding":
				roles[manifest.RoleRef.Name] = true
			}
		}
		if sets != 3 || !roles["plimsoll-exporter"] || !roles["plimsoll-exporter-claim-shares"] {
			t.Errorf("%s: %d DaemonSets, bindings to %v", template.Name, sets, roles)
		}
	}
	if templates != len(config.AddOnTemplates) {
		t.Errorf("%d templates", templates)
	}
}

// Each variable of the templates has a default, and with the defaults the add-on equals
// the kustomize folders.
func TestAddOnVariablesHaveDefaults(t *testing.T) {
	objects, _ := buildFolder(t, "addon")
	defaults := map[string]string{}
	for _, object := range objects {
		if settings, ok := object.(*addonv1alpha1.AddOnDeploymentConfig); ok {
			for _, v := range settings.Spec.CustomizedVariables {
				defaults[v.Name] = v.Value
			}
		}
	}
	variable := regexp.MustCompile(`{{(\w+)}}`)
	for file := range config.AddOnTemplates {
		text, err := os.ReadFile(filepath.Join("addon", file))
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		filled := variable.ReplaceAllStringFunc(string(text), func(v string) string {
			name := strings.Trim(v, "{}")
			found[name] = true
			return defaults[name]
		})
		for _, name := range []string{"COLLECT_INTERVAL_MS", "KUBELET_ROOT"} {
			if !found[name] || defaults[name] == "" {
				t.Errorf("%s: variable %s is missing or has no default", file, name)
			}
		}
		if file == "template.yaml" && !strings.Contains(filled, "path: /var/lib/kubelet/pod-resources") && !strings.Contains(filled, "path: '/var/lib/kubelet/pod-resources'") {
			t.Error("the default of KUBELET_ROOT differs from the manifests")
		}
		if args := slices.Contains(strings.Fields(filled), "--collect-interval=10000"); !args {
			t.Errorf("%s: the default of COLLECT_INTERVAL_MS differs from the manifests", file)
		}
	}
}
