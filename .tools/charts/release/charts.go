package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/tools/charts"
)

// chartImages are the images of the charts.
var chartImages = map[string]string{"plimsoll": "plimsoll-operator", "plimsoll-exporter": "plimsoll-exporter", "plimsoll-fleet": "plimsoll-exporter"}

// writeCharts packs the charts with the version of the release and their images.
func (o options) writeCharts(images map[string]image) error {
	for _, chart := range charts.Names() {
		entries, err := o.chartEntries(chart, images[chartImages[chart]])
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
	files, err := charts.Generate(o.root, chart)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := []byte(files[name])
		switch name {
		case "Chart.yaml":
			text = o.stampChart(text)
		case "values.yaml":
			if text, err = setImage(text, i); err != nil {
				return nil, err
			}
		}
		entries = append(entries, entry{name: chart + "/" + name, mode: 0o644, content: text})
	}
	return entries, nil
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
