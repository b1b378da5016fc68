package charts

import (
	"fmt"
	"maps"
	"path"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

// Render renders the files of a chart as `helm template` does. The result has all rendered files by
// path, NOTES.txt included.
func Render(files map[string]string, namespace string, values map[string]any) (map[string]string, error) {
	var buffered []*loader.BufferedFile
	for name, text := range files {
		buffered = append(buffered, &loader.BufferedFile{Name: name, Data: []byte(text)})
	}
	c, err := loader.LoadFiles(buffered)
	if err != nil {
		return nil, err
	}
	rendered, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "test", Namespace: namespace, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, rendered)
}

// Manifests joins rendered files to one YAML stream, in the order in which Helm installs the
// objects.
func Manifests(rendered map[string]string) (string, error) {
	objects := maps.Clone(rendered)
	maps.DeleteFunc(objects, func(file, _ string) bool { return path.Ext(file) != ".yaml" })
	_, sorted, err := releaseutil.SortManifests(objects, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, m := range sorted {
		fmt.Fprintf(&all, "\n---\n%s", m.Content)
	}
	return all.String(), nil
}
