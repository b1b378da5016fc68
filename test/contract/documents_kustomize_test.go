package contract

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// TestKustomizationsOfDocuments builds each kustomization of a document. The configurations that
// an add-on names must be objects of the build.
func TestKustomizationsOfDocuments(t *testing.T) {
	configurations := 0
	for _, d := range readDocuments(t) {
		for _, b := range d.blocks {
			if b.language != "yaml" || !strings.HasPrefix(b.code, "resources:") {
				continue
			}
			built := buildKustomization(t, b.code)
			var names []string
			for _, r := range built.Resources() {
				names = append(names, r.GetKind()+"/"+r.GetName())
			}
			for _, config := range addOnConfigurations(t, built) {
				configurations++
				if !slices.Contains(names, config) {
					t.Errorf("%s:%d: an add-on names %s, which is not among %v", d.path, b.line, config, names)
				}
			}
		}
	}
	if configurations == 0 {
		t.Error("no document contains a kustomization of an add-on")
	}
}

// buildKustomization builds a kustomization that names folders from the root of the repository.
func buildKustomization(t *testing.T, text string) resmap.ResMap {
	t.Helper()
	dir := t.TempDir()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(dir, absolute) // kustomize does not accept absolute paths
	if err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "[config/", "["+relative+"/config/")
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// addOnConfigurations returns the default configurations of all add-ons as KIND/NAME.
func addOnConfigurations(t *testing.T, built resmap.ResMap) []string {
	t.Helper()
	kinds := map[string]string{"addontemplates": "AddOnTemplate", "addondeploymentconfigs": "AddOnDeploymentConfig"}
	var all []string
	for _, r := range built.Resources() {
		if r.GetKind() != "ClusterManagementAddOn" {
			continue
		}
		addOn := &addonv1alpha1.ClusterManagementAddOn{}
		if err := yaml.Unmarshal([]byte(r.MustYaml()), addOn); err != nil {
			t.Fatal(err)
		}
		for _, config := range addOn.Spec.SupportedConfigs { //nolint:staticcheck // config/addon has this field
			all = append(all, kinds[config.Resource]+"/"+config.DefaultConfig.Name)
		}
	}
	return all
}
