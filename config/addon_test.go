package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "generate addon/template*.yaml from exporter/, exporter-amd/ and exporter-tpu/")

// addOnTemplates are the templates by file, with the component of each platform.
var addOnTemplates = map[string]struct{ name, component string }{
	"template.yaml":     {"plimsoll-exporter", ""},
	"template-gke.yaml": {"plimsoll-exporter-gke", "exporter/gke"},
	"template-cdi.yaml": {"plimsoll-exporter-cdi", "exporter/cdi"},
	"template-sim.yaml": {"plimsoll-exporter-sim", "exporter/sim"},
}

// The add-on contains the objects of config/exporter, config/exporter-amd and
// config/exporter-tpu, without the network policies: the administrator of a worker decides
// about these.
func TestAddOnTemplatesAreGenerated(t *testing.T) {
	for file, template := range addOnTemplates {
		folder := "exporter"
		if template.component != "" {
			folder = withComponents(t, "exporter", template.component)
		}
		_, documents := buildFolder(t, folder)
		_, amd := buildFolder(t, "exporter-amd")
		_, tpu := buildFolder(t, "exporter-tpu")
		want := addOnTemplate(t, template.name, slices.Concat(documents, amd, tpu))
		checkGenerated(t, filepath.Join("addon", file), want)
	}
}

// checkGenerated fails if a file does not have the wanted text. With -update, it writes the file first.
func checkGenerated(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not up to date; run go test ./config -update (-want +got):\n%s", path, diff)
	}
}

// variables replaces defaults in the manifests by variables of the add-on. The
// AddOnDeploymentConfig has their values.
var variables = strings.NewReplacer(
	"--collect-interval=10000", "--collect-interval={{COLLECT_INTERVAL_MS}}",
	"--attribution=split", "--attribution={{ATTRIBUTION}}",
	"          path: /var/lib/kubelet/pod-resources", "          path: '{{KUBELET_ROOT}}/pod-resources'",
)

// addOnTemplate returns an AddOnTemplate with the manifests.
func addOnTemplate(t *testing.T, name string, documents [][]byte) string {
	t.Helper()
	var manifests []any
	for _, document := range documents {
		if strings.Contains(string(document), "{{") {
			t.Error("the manifests contain {{…}}, which the add-on framework would replace")
		}
		var manifest map[string]any
		if err := yaml.Unmarshal([]byte(variables.Replace(string(document))), &manifest); err != nil {
			t.Fatal(err)
		}
		if manifest["kind"] != "NetworkPolicy" {
			manifests = append(manifests, manifest)
		}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "addon.open-cluster-management.io/v1alpha1",
		"kind":       "AddOnTemplate",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"addonName": "plimsoll-exporter",
			"agentSpec": map[string]any{"workload": map[string]any{"manifests": manifests}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return "# Generated from ../exporter, ../exporter-amd and ../exporter-tpu: go test ./config -update\n" + string(text)
}

// addOnComponents are the components of the exporter that are components of the add-on, too.
var addOnComponents = []string{"pod-owners", "claim-shares"}

// The components of the add-on change its templates as the components of the exporter change the
// exporter: the same arguments, token and roles.
func TestAddOnComponentsAreGenerated(t *testing.T) {
	for _, component := range addOnComponents {
		checkGenerated(t, filepath.Join("addon", component, "kustomization.yaml"), addOnComponent(t, component))
	}
}

// addOnComponent returns the component of the add-on for a component of the exporter.
func addOnComponent(t *testing.T, component string) string {
	t.Helper()
	folder := withComponents(t, "exporter", "exporter/"+component)
	args := podTemplate(t, folder).Spec.Containers[0].Args
	const workload = "/spec/agentSpec/workload/manifests/"
	var operations []any
	add := func(path string, value any) {
		operations = append(operations, map[string]any{"op": "add", "path": path, "value": value})
	}
	for _, i := range daemonSetIndexes(t) {
		pod := fmt.Sprintf("%s%d/spec/template/spec/", workload, i)
		add(pod+"automountServiceAccountToken", true)
		for _, arg := range args[len(podTemplate(t, "exporter").Spec.Containers[0].Args):] {
			add(pod+"containers/0/args/-", arg)
		}
	}
	_, documents := buildFolder(t, folder)
	for _, document := range documents {
		var manifest map[string]any
		if err := yaml.Unmarshal(document, &manifest); err != nil {
			t.Fatal(err)
		}
		if kind := manifest["kind"]; kind == "ClusterRole" || kind == "ClusterRoleBinding" {
			add(workload+"-", manifest)
		}
	}
	patch, err := yaml.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component",
		"patches": []any{map[string]any{"target": map[string]any{"kind": "AddOnTemplate"}, "patch": string(patch)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("# Component: ../../exporter/%s for the add-on, without its network policy.\n# Generated from it: go test ./config -update\n", component) + string(text)
}

// daemonSetIndexes returns the indexes of the DaemonSets, which all templates must have in common.
func daemonSetIndexes(t *testing.T) (indexes []int) {
	t.Helper()
	objects, _ := buildFolder(t, "addon")
	for _, object := range objects {
		template, ok := object.(*addonv1alpha1.AddOnTemplate)
		if !ok {
			continue
		}
		var found []int
		for i, m := range template.Spec.AgentSpec.Workload.Manifests {
			if strings.Contains(string(m.Raw), `"kind":"DaemonSet"`) {
				found = append(found, i)
			}
		}
		if indexes != nil && !slices.Equal(indexes, found) {
			t.Errorf("%s has DaemonSets at %v, others at %v: one patch for all does not work", template.Name, found, indexes)
		}
		indexes = found
	}
	return indexes
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
	if templates != len(addOnTemplates) {
		t.Errorf("%d templates", templates)
	}
}

// Each variable of the templates has a default, and with the defaults the add-on equals
// the kustomize folders.
func TestAddOnVariablesHaveDefaults(t *testing.T) {
	objects, _ := buildFolder(t, "addon")
	defaults := map[string]string{}
	for _, object := range objects {
		if config, ok := object.(*addonv1alpha1.AddOnDeploymentConfig); ok {
			for _, v := range config.Spec.CustomizedVariables {
				defaults[v.Name] = v.Value
			}
		}
	}
	variable := regexp.MustCompile(`{{(\w+)}}`)
	for file := range addOnTemplates {
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
		for _, name := range []string{"COLLECT_INTERVAL_MS", "ATTRIBUTION", "KUBELET_ROOT"} {
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
