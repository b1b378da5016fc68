package main

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
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

// manifests joins the rendered files to one YAML stream.
func manifests(files map[string]string) string {
	var all strings.Builder
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(file) == ".yaml" {
			fmt.Fprintf(&all, "\n---\n%s", files[file])
		}
	}
	return all.String()
}
