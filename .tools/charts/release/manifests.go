package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifestFiles are the folders of config in each file of manifests.
var manifestFiles = map[string][]string{
	"install.yaml":  {"crd", "default", "guard"},
	"exporter.yaml": {"exporter", "exporter-tpu", "exporter-amd"},
}

// writeManifests writes the manifests with the images of the release.
func (o options) writeManifests(images map[string]image) error {
	for name, folders := range manifestFiles {
		text, err := o.build(folders, images)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		header := fmt.Sprintf("# Plimsoll %s. Apply with: kubectl apply --server-side -f %s\n", o.version, name)
		if err := o.write(name, append([]byte(header), text...)); err != nil {
			return err
		}
	}
	return nil
}

// build builds folders of config as kubectl kustomize does, with the images of the release.
func (o options) build(folders []string, images map[string]image) ([]byte, error) {
	overlay, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(overlay) }() // a folder in the temporary directory
	if overlay, err = filepath.EvalSymlinks(overlay); err != nil {
		return nil, err
	}
	base, err := filepath.Rel(overlay, filepath.Join(o.root, "config"))
	if err != nil {
		return nil, err
	}
	var resources []string
	for _, folder := range folders {
		resources = append(resources, base+"/"+folder)
	}
	var replaced []map[string]string
	for _, name := range requiredImages {
		i := map[string]string{"name": name, "newName": images[name].repository}
		if images[name].hasRegistry() {
			i["digest"] = images[name].digest
		} else {
			i["newTag"] = o.version
		}
		replaced = append(replaced, i)
	}
	text, err := yaml.Marshal(map[string]any{"resources": resources, "images": replaced})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), text, 0o600); err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		return nil, err
	}
	return built.AsYaml()
}
