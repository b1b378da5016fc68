package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// AddOnTemplate is the name of an AddOnTemplate, and the component of its platform.
type AddOnTemplate struct{ Name, Component string }

// AddOnTemplates are the templates by file of config/addon.
var AddOnTemplates = map[string]AddOnTemplate{
	"template.yaml":     {"plimsoll-exporter", ""},
	"template-gke.yaml": {"plimsoll-exporter-gke", "exporter/gke"},
	"template-cdi.yaml": {"plimsoll-exporter-cdi", "exporter/cdi"},
	"template-sim.yaml": {"plimsoll-exporter-sim", "exporter/sim"},
}

// addOnComponents are the components of the exporter that are components of the add-on, too.
var addOnComponents = []string{"pod-owners", "claim-shares"}

// manifest is an object, with its YAML as kustomize writes it.
type manifest struct {
	text   []byte
	fields map[string]any
}

func (m manifest) kind() string { return m.fields["kind"].(string) }

// addOnFiles returns the AddOnTemplates and the patches of the add-on's components by their path
// below config. A template contains the objects of config/exporter, config/exporter-amd and
// config/exporter-tpu, without the network policies: the administrator of a worker decides about
// these.
func addOnFiles(root string) (map[string][]byte, error) {
	config := filepath.Join(root, "config")
	others := [][]manifest{nil, nil}
	for i, folder := range []string{"exporter-amd", "exporter-tpu"} {
		var err error
		if others[i], err = build(config, folder); err != nil {
			return nil, err
		}
	}
	files, sets := map[string][]byte{}, []int(nil)
	for file, template := range AddOnTemplates {
		var components []string
		if template.Component != "" {
			components = []string{template.Component}
		}
		exporter, err := build(config, "exporter", components...)
		if err != nil {
			return nil, err
		}
		manifests, err := workload(slices.Concat(exporter, others[0], others[1]))
		if err != nil {
			return nil, err
		}
		indexes := daemonSets(manifests)
		if sets != nil && !slices.Equal(sets, indexes) {
			return nil, fmt.Errorf("%s has DaemonSets at %v, others at %v: one patch for all does not work", template.Name, indexes, sets)
		}
		sets = indexes
		if files["addon/"+file], err = addOnTemplate(template.Name, manifests); err != nil {
			return nil, err
		}
	}
	for _, component := range addOnComponents {
		patch, err := addOnPatch(config, component, sets)
		if err != nil {
			return nil, err
		}
		files["addon/"+component+"/patch.yaml"] = patch
	}
	return files, nil
}

// variables replaces defaults in the manifests by variables of the add-on. The
// AddOnDeploymentConfig has their values.
var variables = strings.NewReplacer(
	"--collect-interval=10000", "--collect-interval={{COLLECT_INTERVAL_MS}}",
	"          path: /var/lib/kubelet/pod-resources", "          path: '{{KUBELET_ROOT}}/pod-resources'",
)

// workload returns the manifests of an AddOnTemplate.
func workload(manifests []manifest) ([]map[string]any, error) {
	var all []map[string]any
	for _, m := range manifests {
		if bytes.Contains(m.text, []byte("{{")) {
			return nil, errors.New("the manifests contain {{…}}, which the add-on framework would replace")
		}
		if m.kind() == "NetworkPolicy" {
			continue
		}
		var fields map[string]any
		if err := yaml.Unmarshal([]byte(variables.Replace(string(m.text))), &fields); err != nil {
			return nil, err
		}
		all = append(all, fields)
	}
	return all, nil
}

// daemonSets returns the indexes of the DaemonSets.
func daemonSets(manifests []map[string]any) []int {
	var indexes []int
	for i, m := range manifests {
		if m["kind"] == "DaemonSet" {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func addOnTemplate(name string, manifests []map[string]any) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "addon.open-cluster-management.io/v1alpha1",
		"kind":       "AddOnTemplate",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"addonName": "plimsoll-exporter",
			"agentSpec": map[string]any{"workload": map[string]any{"manifests": manifests}},
		},
	})
}

// addOnPatch returns the patch of the AddOnTemplates for a component of the exporter: it changes the
// DaemonSets with these indexes as the component changes that of the exporter, and adds its roles.
func addOnPatch(config, component string, sets []int) ([]byte, error) {
	before, err := build(config, "exporter")
	if err != nil {
		return nil, err
	}
	after, err := build(config, "exporter", "exporter/"+component)
	if err != nil {
		return nil, err
	}
	const manifests = "/spec/agentSpec/workload/manifests/"
	var operations []any
	add := func(path string, value any) {
		operations = append(operations, map[string]any{"op": "add", "path": path, "value": value})
	}
	for _, i := range sets {
		pod := fmt.Sprintf("%s%d/spec/template/spec/", manifests, i)
		add(pod+"automountServiceAccountToken", true)
		for _, arg := range arguments(after)[len(arguments(before)):] {
			add(pod+"containers/0/args/-", arg)
		}
	}
	for _, m := range after {
		if kind := m.kind(); kind == "ClusterRole" || kind == "ClusterRoleBinding" {
			add(manifests+"-", m.fields)
		}
	}
	return yaml.Marshal(operations)
}

// arguments returns the arguments of the first DaemonSet's container.
func arguments(manifests []manifest) []any {
	for _, m := range manifests {
		if m.kind() == "DaemonSet" {
			pod := m.fields["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			return pod["containers"].([]any)[0].(map[string]any)["args"].([]any)
		}
	}
	return nil
}

// build builds a folder of config with components, as kubectl kustomize does.
func build(config, folder string, components ...string) (manifests []manifest, err error) {
	overlay, err := os.MkdirTemp("", "config")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(overlay)) }()
	here, err := filepath.EvalSymlinks(overlay)
	if err != nil {
		return nil, err
	}
	if config, err = filepath.Abs(config); err != nil {
		return nil, err
	}
	base, err := filepath.Rel(here, config)
	if err != nil {
		return nil, err
	}
	kustomization := map[string][]string{"resources": {base + "/" + folder}}
	for _, c := range components {
		kustomization["components"] = append(kustomization["components"], base+"/"+c)
	}
	text, err := yaml.Marshal(kustomization)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(here, "kustomization.yaml"), text, 0o600); err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), here)
	if err != nil {
		return nil, fmt.Errorf("config/%s: %w", folder, err)
	}
	for _, r := range built.Resources() {
		m := manifest{}
		if m.text, err = r.AsYAML(); err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(m.text, &m.fields); err != nil {
			return nil, err
		}
		manifests = append(manifests, m)
	}
	return manifests, nil
}
