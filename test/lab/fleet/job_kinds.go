package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/test/lab/components"
)

// jobKind has the CRDs of kinds of jobs that Kueue manages. Their own controllers do not run, so
// they have no pods.
type jobKind struct {
	module string
	// files is a pattern below the module's folder.
	files string
	// anySchema leaves out the schemas. Those with pod templates have about 1 MB each, and every
	// kube-apiserver of the lab would have to read them.
	anySchema bool
}

var jobKinds = []jobKind{
	{module: "sigs.k8s.io/jobset", files: "config/components/crd/bases/*.yaml"},
	{module: "sigs.k8s.io/lws", files: "config/crd/bases/*.yaml"},
	{module: "github.com/ray-project/kuberay/ray-operator", files: "config/crd/bases/ray.io_rayclusters.yaml", anySchema: true},
	{module: "github.com/ray-project/kuberay/ray-operator", files: "config/crd/bases/ray.io_rayjobs.yaml", anySchema: true},
	{module: "github.com/kubeflow/training-operator", files: "manifests/base/crds/kubeflow.org_pytorchjobs.yaml", anySchema: true},
	{module: "github.com/kubeflow/trainer/v2", files: "manifests/base/crds/trainer.kubeflow.org_*.yaml", anySchema: true},
	{module: "github.com/kubeflow/mpi-operator", files: "manifests/base/kubeflow.org_mpijobs.yaml", anySchema: true},
}

// jobKindManifests returns the CRDs of jobKinds.
func (f *Fleet) jobKindManifests(ctx context.Context) ([]string, error) {
	var manifests []string
	for _, kind := range jobKinds {
		dir, err := components.SourceDir(ctx, f.opts.Root, "shared", kind.module)
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob(filepath.Join(dir, kind.files))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("find the CRDs of %s in %s: %w", kind.module, dir, errors.Join(err, os.ErrNotExist))
		}
		for _, file := range files {
			manifest, err := kind.manifest(file)
			if err != nil {
				return nil, fmt.Errorf("read the CRDs of %s: %w", kind.module, err)
			}
			manifests = append(manifests, manifest)
		}
	}
	return manifests, nil
}

func (k jobKind) manifest(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil || !k.anySchema {
		return strings.TrimPrefix(string(text), "---\n"), err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return "", err
	}
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	if err != nil {
		return "", err
	}
	for _, version := range versions {
		if v, ok := version.(map[string]any); ok {
			v["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
			delete(v, "additionalPrinterColumns")
		}
	}
	if err := unstructured.SetNestedSlice(crd, versions, "spec", "versions"); err != nil {
		return "", err
	}
	bare, err := yaml.Marshal(crd)
	return string(bare), err
}
