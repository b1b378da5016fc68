package main

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

// renderChart returns the files of a chart as `helm template` does, by path, NOTES.txt
// included.
func renderChart(root, name, namespace string, values map[string]any) (map[string]string, error) {
	c, err := loader.Load(filepath.Join(root, "config", "chart", name))
	if err != nil {
		return nil, err
	}
	rendered, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "test", Namespace: namespace, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, rendered)
}

// manifests joins the rendered files to one YAML stream, in the order in which Helm installs
// the objects.
func manifests(files map[string]string) (string, error) {
	rendered := maps.Clone(files)
	maps.DeleteFunc(rendered, func(file, _ string) bool { return path.Ext(file) != ".yaml" })
	_, sorted, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, m := range sorted {
		fmt.Fprintf(&all, "\n---\n%s", m.Content)
	}
	return all.String(), nil
}
