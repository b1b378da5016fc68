// Package charts generates the Helm charts from the kustomize folders, so that there is one source of
// each manifest.
//
// A field that a chart makes configurable gets a marker with a template expression before
// the object is written as YAML: "@@ EXPRESSION @@" becomes {{ EXPRESSION }}, and a line
// with "@@line NAME@@" becomes a block of lines.
package charts

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

var all = []chart{operatorChart, exporterChart, fleetChart}

// Names returns the names of the charts.
func Names() []string {
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	return names
}

// Prepare writes the manifests of config that git ignores: charts contain them.
func Prepare(ctx context.Context, root string) error {
	cmd := exec.CommandContext(ctx, "go", "run", "./config/generate")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make config: %w: %s", err, out)
	}
	return nil
}

// Generate returns the files of a chart by path. It reads the repository at root, after Prepare.
func Generate(root, name string) (map[string]string, error) {
	i := slices.IndexFunc(all, func(c chart) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no chart %q, only %s", name, strings.Join(Names(), ", "))
	}
	return all[i].generate(root)
}

// ValuesFile is the document with the values of all charts, from the root of the repository.
const ValuesFile = "config/charts.md"

// Values returns this document.
func Values() (string, error) {
	var b strings.Builder
	b.WriteString("# Values of the charts\n\nGenerated from `.tools/charts` by `make charts`. [Installation](README.md#charts)\n")
	for _, c := range all {
		table, err := valuesTable(c.values)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", c.name, c.description, table)
	}
	return b.String(), nil
}

// chart describes how a chart is generated.
type chart struct {
	name, description string
	// kubernetes is the lowest version of Kubernetes that it installs on.
	kubernetes string
	values     []value
	parts      func(root string) ([]part, error)
	blocks     map[string]string
	// finish changes the text of a template.
	finish func(text string) string
	files  func(root string) (map[string]string, error)
	notes  string
}

const imageExpression = `image: {{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
`

const extraArgs = `{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
`

// generate returns the files of the chart by path.
func (c chart) generate(root string) (map[string]string, error) {
	parts, err := c.parts(root)
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"Chart.yaml":          fmt.Sprintf("apiVersion: v2\nname: %s\ndescription: %q\ntype: application\nversion: 0.0.0-dev\nappVersion: dev\nkubeVersion: '>= %s.0-0'\n", c.name, c.description, c.kubernetes),
		"templates/NOTES.txt": c.notes,
	}
	for _, p := range parts {
		text, err := p.toFile(c.blocks)
		if err != nil {
			return nil, err
		}
		files["templates/"+p.file] = c.finish(text)
	}
	if files["values.yaml"], files["values.schema.json"], err = valuesFiles(c.values); err != nil {
		return nil, err
	}
	table, err := valuesTable(c.values)
	if err != nil {
		return nil, err
	}
	files["README.md"] = "# Chart " + c.name + "\n\n" + c.description + "\n\n## Values\n\n" + table
	if c.files == nil {
		return files, nil
	}
	more, err := c.files(root)
	for name, text := range more {
		files[name] = text
	}
	return files, err
}
