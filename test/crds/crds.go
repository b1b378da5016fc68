// Package crds reads the CustomResourceDefinitions of a hub, for tests on an API server without
// Kueue. Conversion is removed, because nothing serves the webhooks of Kueue's definitions there.
package crds

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Kueue returns the definitions of Kueue. An error names the module or file that can't be read.
func Kueue() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return read("sigs.k8s.io/kueue", "config/components/crd/bases/*.yaml")
}

// Hub returns the definitions of Plimsoll, Kueue, and OCM's clusters, Placements and scores.
func Hub() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := Kueue()
	if err != nil {
		return nil, err
	}
	for _, files := range []struct{ module, pattern string }{
		{"plimsoll.dev/plimsoll", "config/crd/plimsoll.dev_*.yaml"},
		{"open-cluster-management.io/api", "cluster/v1/*.crd.yaml"},
		{"open-cluster-management.io/api", "cluster/v1alpha1/*.crd.yaml"},
		{"open-cluster-management.io/api", "cluster/v1beta1/*.crd.yaml"},
	} {
		definitions, err := read(files.module, files.pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, definitions...)
	}
	return all, nil
}

// read returns the definitions in the files of a module that match a pattern: at least one.
func read(module, pattern string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, fmt.Errorf("find module %s: %w", module, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), pattern))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("module %s has no CRDs at %s (%v)", module, pattern, err)
	}
	definitions := make([]*apiextensionsv1.CustomResourceDefinition, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		definitions[i] = &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, definitions[i]); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		definitions[i].Spec.Conversion = nil
	}
	return definitions, nil
}
