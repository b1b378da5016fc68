package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		path := filepath.Join("addon", file)
		if *update {
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
