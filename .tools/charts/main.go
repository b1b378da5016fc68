// Command charts generates the Helm charts in config/chart from the kustomize folders, so
// that there is one source of each manifest. `make charts` calls it. With --render, it
// prints the manifests of a chart as `helm template` does.
//
// A field that a chart makes configurable gets a marker with a template expression before
// the object is written as YAML: "@@ EXPRESSION @@" becomes {{ EXPRESSION }}, and a line
// with "@@line NAME@@" becomes a block of lines.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

func main() {
	root := flag.String("root", "../..", "root of the repository")
	render := flag.String("render", "", "print the manifests of this chart instead")
	namespace := flag.String("namespace", "plimsoll-system", "with --render: namespace of the release")
	values := flag.String("values", "{}", "with --render: values as YAML or JSON")
	flag.Parse()
	if *render != "" {
		if err := printChart(*root, *render, *namespace, *values); err != nil {
			fmt.Fprintf(os.Stderr, "charts: %s: %v\n", *render, err)
			os.Exit(1)
		}
		return
	}
	for _, c := range charts {
		files, err := c.generate(*root)
		if err == nil {
			err = write(filepath.Join(*root, "config", "chart", c.name), files)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "charts: %s: %v\n", c.name, err)
			os.Exit(1)
		}
	}
}

// printChart prints the manifests of a chart with values.
func printChart(root, name, namespace, values string) error {
	parsed := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &parsed); err != nil {
		return err
	}
	files, err := renderChart(root, name, namespace, parsed)
	if err != nil {
		return err
	}
	text, err := manifests(files)
	if err != nil {
		return err
	}
	_, err = fmt.Print(text)
	return err
}

// write replaces the files of a chart.
func write(dir string, files map[string]string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
