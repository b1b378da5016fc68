// Command generate writes the Helm charts to dist/charts, and the table of their values to
// config/charts.md. `make charts` calls it. With --render, it prints the manifests of a chart as
// `helm template` does, and writes nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/tools/charts"
)

func main() {
	root := flag.String("root", "../..", "root of the repository")
	render := flag.String("render", "", "print the manifests of this chart instead")
	namespace := flag.String("namespace", "plimsoll-system", "with --render: namespace of the release")
	values := flag.String("values", "{}", "with --render: values as YAML or JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := charts.Prepare(ctx, *root)
	switch {
	case err != nil:
	case *render != "":
		err = printChart(*root, *render, *namespace, *values)
	default:
		err = errors.Join(writeCharts(*root), writeValues(*root))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(1)
	}
}

// printChart prints the manifests of a chart with values.
func printChart(root, name, namespace, values string) error {
	parsed := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &parsed); err != nil {
		return err
	}
	files, err := charts.Generate(root, name)
	if err != nil {
		return err
	}
	rendered, err := charts.Render(files, namespace, parsed)
	if err != nil {
		return err
	}
	text, err := charts.Manifests(rendered)
	if err != nil {
		return err
	}
	_, err = fmt.Print(text)
	return err
}

// writeCharts replaces the charts in dist/charts.
func writeCharts(root string) error {
	for _, name := range charts.Names() {
		files, err := charts.Generate(root, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := write(filepath.Join(root, "dist", "charts", name), files); err != nil {
			return err
		}
	}
	return nil
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

func writeValues(root string) error {
	text, err := charts.Values()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, charts.ValuesFile), []byte(text), 0o644)
}
