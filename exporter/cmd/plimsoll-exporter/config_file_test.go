package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigFile(t *testing.T) {
	const version1 = "version: 1\nmetrics: {file: /etc/x.csv}\ncollection: {interval: 15s, watchGroups: [{name: a, interval: 5s, fields: [DCGM_FI_DEV_GPU_TEMP]}]}\n"
	const version2 = `version: 2
metrics:
  enableExporterMetrics: true
  fields: [{name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: GPU temperature.}]
sources: {dcgm: {watch: {maxKeepAge: 10m}, detectBindUnbind: {enabled: true}}}
server: {maxConcurrentScrapes: 3}
collections:
- {name: fast, every: 5s, metrics: {include: ["DCGM_FI_DEV_*"]}}
- {name: scrape, every: 20s, metrics: {include: ["*"]}}
`
	for _, tc := range []struct {
		name, text  string
		args        []string
		counterFile string
		inline      int
		interval    int
		scrapes     int
		metrics     bool
		warnings    []string
	}{
		{"version 1", version1, nil, "/etc/x.csv", 0, 15000, 16, false, []string{"collection.watchGroups"}},
		{"version 2", version2, nil, defaultCounterFile, 1, 20000, 3, true, []string{"setting=sources", "collections[0] (fast)"}},
		{"flags win", version2, []string{"-f", "y.csv", "-c=1000", "--max-concurrent-scrapes=5", "--enable-exporter-metrics=false"}, "y.csv", 0, 1000, 5, false, nil},
		{"a ConfigMap wins", version1, []string{"-m", "ns:name", "--interval", "2000"}, defaultCounterFile, 0, 2000, 16, false, nil},
		{"only metrics of the exporter", "version: 2\nmetrics: {enableExporterMetrics: true}\n", nil, defaultCounterFile, 0, 30000, 16, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := parse(t, append(tc.args, "--config-file="+writeFile(t, tc.text))...)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			if err := o.applyConfigFile(slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				t.Fatal(err)
			}
			if o.counterFile != tc.counterFile || len(o.inlineCounters) != tc.inline || o.interval != tc.interval || o.maxScrapes != tc.scrapes || o.exporterMetrics != tc.metrics {
				t.Errorf("counter file %s, %d inline counters, interval %d, %d scrapes, metrics %t", o.counterFile, len(o.inlineCounters), o.interval, o.maxScrapes, o.exporterMetrics)
			}
			for _, want := range tc.warnings {
				if !strings.Contains(log.String(), want) {
					t.Errorf("no warning %q in\n%s", want, &log)
				}
			}
		})
	}
}

func TestEnvironmentTakesPrecedenceOverConfigFile(t *testing.T) {
	t.Setenv("DCGM_EXPORTER_INTERVAL", "7000")
	t.Setenv("DCGM_EXPORTER_CONFIG_FILE", writeFile(t, "version: 1\ncollection: {interval: 15s}\n"))
	o, err := parse(t)
	if err == nil {
		err = o.applyConfigFile(slog.New(slog.DiscardHandler))
	}
	if err != nil || o.interval != 7000 {
		t.Errorf("interval %d, %v", o.interval, err)
	}
}

func TestInvalidConfigFiles(t *testing.T) {
	for text, want := range map[string]string{
		"version: 3\n":                                                      "version must be 1 or 2, not 3",
		"metrics: {file: x}\n":                                              "version must be 1 or 2, not 0",
		"version: 2\nmetric: {}\n":                                          "field metric not found",
		"version: 2\nversion: 2\n":                                          "already defined",
		"version: 2\n---\nversion: 2\n":                                     "one YAML document",
		"version: 2\nmetrics: {}\n":                                         "metrics must have",
		"version: 2\ncollection: {interval: 1s}":                            "collection requires version 1",
		"version: 1\ncollections: []\n":                                     "collections requires version 2",
		"version: 1\ncollection: {interval: 1}":                             `collection.interval must be a duration in whole milliseconds such as 30s, not "1"`,
		"version: 2\nmetrics: {fields: [{name: A, prometheusType: gauze}]}": "metrics.fields: entry 1: the type of A",
		"version: 2\nmetrics: {file: x, fields: [{name: A, prometheusType: gauge}]}":                                                  "either file or fields",
		"version: 2\ncollections: [{name: a, every: 1s, metrics: {}}]":                                                                "collections[0] must have a name",
		"version: 2\ncollections: [{name: a, every: 1us, metrics: {include: [x]}}]":                                                   "collections[0].every",
		"version: 2\nserver: {maxConcurrentScrapes: 0}\n":                                                                             "--max-concurrent-scrapes must be at least 1",
		"version: 2\ncollections: [{name: a, every: 1s, metrics: {include: ['*']}}, {name: b, every: 1s, metrics: {include: ['*']}}]": "collections[1] is the second one",
		"version: 2\nmetrics: []\n": "line 2: cannot unmarshal !!seq",
		"{":                         "yaml",
		"":                          "the file is empty",
		"# version: 2\n":            "the file is empty",
	} {
		t.Run(want, func(t *testing.T) {
			o, err := parse(t, "--node-name=n", "--config-file="+writeFile(t, text))
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = o.prepare(slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "struct {") {
				t.Errorf("%q: %v", text, err)
			}
			isValue := strings.HasPrefix(want, "--") // of a flag that the file sets
			if err != nil && !isValue && !strings.Contains(err.Error(), "--config-file: "+o.configFile+": ") {
				t.Errorf("the error does not name the file: %v", err)
			}
		})
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The metrics of the process are exported on request, those of the node always.
func TestExporterMetricsAreOptional(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		var args []string
		if enabled {
			args = append(args, "--config-file="+writeFile(t, "version: 2\nmetrics: {enableExporterMetrics: true, fields: [{name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: Temperature.}]}\n"))
		}
		p := start(t, command(t, append(args, "--source=sim")...))
		text := p.waitFor("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_TEMP{")
		for _, name := range []string{"go_goroutines ", "process_resident_memory_bytes ", "promhttp_metric_handler_requests_total{"} {
			if strings.Contains(text, "\n"+name) != enabled {
				t.Errorf("%s: %t, want %t", name, !enabled, enabled)
			}
		}
		for _, name := range []string{"plimsoll_exporter_mapped_devices{", "plimsoll_build_info{"} {
			if !strings.Contains(text, "\n"+name) {
				t.Errorf("%s is missing", name)
			}
		}
		if strings.Contains(text, "DCGM_FI_DEV_POWER_USAGE{") == enabled {
			t.Errorf("the configuration file selects the wrong metrics")
		}
	}
}
