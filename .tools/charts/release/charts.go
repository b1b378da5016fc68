package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"sigs.k8s.io/yaml"
)

// charts are the charts, with the image of each.
var charts = map[string]string{"plimsoll": "plimsoll-operator", "plimsoll-exporter": "plimsoll-exporter", "plimsoll-fleet": "plimsoll-exporter"}

// writeCharts packs the charts with the version of the release and their images.
func (o options) writeCharts(images map[string]image) error {
	for chart, name := range charts {
		entries, err := o.chartEntries(chart, images[name])
		if err != nil {
			return fmt.Errorf("chart %s: %w", chart, err)
		}
		if err := o.writeArchive(fmt.Sprintf("%s-%s.tgz", chart, o.chartVersion()), entries); err != nil {
			return err
		}
	}
	return nil
}

func (o options) chartEntries(chart string, i image) ([]entry, error) {
	dir := filepath.Join(o.root, "config", "chart", chart)
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch relative {
		case "Chart.yaml":
			text = o.stampChart(text)
		case "values.yaml":
			if text, err = setImage(text, i); err != nil {
				return err
			}
		}
		entries = append(entries, entry{name: chart + "/" + filepath.ToSlash(relative), mode: 0o644, content: text})
		return nil
	})
	return entries, err
}

var (
	chartVersionLine = regexp.MustCompile(`(?m)^version: .*$`)
	appVersionLine   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// stampChart sets the version of a chart.
func (o options) stampChart(text []byte) []byte {
	text = chartVersionLine.ReplaceAll(text, []byte("version: "+o.chartVersion()))
	return appVersionLine.ReplaceAll(text, []byte("appVersion: "+o.version))
}

// setImage sets the image in the default values of a chart. Without a tag and a digest, the tag is
// the chart's appVersion.
func setImage(text []byte, i image) ([]byte, error) {
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	settings, ok := values["image"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("values.yaml has no image")
	}
	settings["repository"] = i.repository
	if i.hasRegistry() {
		settings["digest"] = i.digest
	}
	return yaml.Marshal(values)
}
