package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
)

// maxConfigFileSize is the size of a configuration file in bytes.
const maxConfigFileSize = 1 << 20

// configFile is dcgm-exporter's configuration file, in version 1 (4.8.3) or 2 (4.8.4). Flags
// and environment variables take precedence over it.
type configFile struct {
	Version     int                `yaml:"version"`
	Metrics     *metricsConfig     `yaml:"metrics"`
	Server      *serverConfig      `yaml:"server"`
	Sources     yaml.Node          `yaml:"sources"`     // only applies to DCGM
	Collection  *collectionConfig  `yaml:"collection"`  // the schedule in version 1
	Collections []collectionsEntry `yaml:"collections"` // the schedules in version 2
}

// The sections have types with names, because errors of the YAML parser print the types.
type (
	metricsConfig struct {
		File                  string        `yaml:"file"`
		Fields                []fieldConfig `yaml:"fields"`
		EnableExporterMetrics *bool         `yaml:"enableExporterMetrics"`
	}
	fieldConfig struct {
		Name string `yaml:"name"`
		Type string `yaml:"prometheusType"`
		Help string `yaml:"help"`
	}
	serverConfig struct {
		MaxConcurrentScrapes *int `yaml:"maxConcurrentScrapes"`
	}
	collectionConfig struct {
		Interval    string      `yaml:"interval"`
		Retention   yaml.Node   `yaml:"retention"` // only applies to DCGM
		WatchGroups []yaml.Node `yaml:"watchGroups"`
	}
	collectionsEntry struct {
		Name    string          `yaml:"name"`
		Every   string          `yaml:"every"`
		Metrics includedMetrics `yaml:"metrics"`
		Sources yaml.Node       `yaml:"sources"` // only applies to DCGM
	}
	includedMetrics struct {
		Include []string `yaml:"include"`
	}
)

// userFlag reports whether the user has set a flag or its environment variable.
type userFlag struct {
	onCommandLine bool
	env           string
}

func (f *userFlag) isSet() bool { return f.onCommandLine || os.Getenv(f.env) != "" }

// applyConfigFile reads the configuration file and applies what no flag and no environment
// variable sets.
func (o *options) applyConfigFile(log *slog.Logger) error {
	if o.configFile == "" {
		return nil
	}
	text, err := readRegularFile(o.configFile, maxConfigFileSize)
	if err != nil {
		return fmt.Errorf("--config-file: %w", err)
	}
	if err := o.applyConfig(text, log); err != nil {
		return fmt.Errorf("--config-file: %s: %w", o.configFile, err)
	}
	return nil
}

func (o *options) applyConfig(text string, log *slog.Logger) error {
	c, err := parseConfig(text)
	if err != nil {
		return err
	}
	if c.Metrics != nil {
		if err := o.applyMetrics(c); err != nil {
			return err
		}
	}
	if c.Server != nil && c.Server.MaxConcurrentScrapes != nil && !o.scrapesFlag.isSet() {
		o.maxScrapes = *c.Server.MaxConcurrentScrapes
	}
	if !c.Sources.IsZero() {
		warnIgnored(log, "sources", "DCGM is not used")
	}
	return o.applySchedule(c, log)
}

// parseConfig parses a configuration file. Unknown keys, repeated keys and several
// documents are errors.
func parseConfig(text string) (*configFile, error) {
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.KnownFields(true)
	c := &configFile{}
	switch err := decoder.Decode(c); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty")
	case err != nil:
		return nil, err
	}
	var more yaml.Node
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("must contain one YAML document")
	}
	switch {
	case c.Version != 1 && c.Version != 2:
		return nil, fmt.Errorf("version must be 1 or 2, not %d", c.Version)
	case c.Version == 1 && c.Collections != nil:
		return nil, errors.New("collections requires version 2; version 1 has collection")
	case c.Version == 2 && c.Collection != nil:
		return nil, errors.New("collection requires version 1; version 2 has collections")
	}
	return c, nil
}

// applyMetrics applies the selection of metrics, which comes from a counter file or from
// the configuration file itself.
func (o *options) applyMetrics(c *configFile) error {
	m := c.Metrics
	switch {
	case m.File != "" && len(m.Fields) > 0:
		return errors.New("metrics must have either file or fields")
	case m.File == "" && len(m.Fields) == 0 && m.EnableExporterMetrics == nil:
		return errors.New("metrics must have file, fields or enableExporterMetrics")
	}
	if m.EnableExporterMetrics != nil && !o.exporterMetricsFlag.isSet() {
		o.exporterMetrics = *m.EnableExporterMetrics
	}
	var counters []collector.Counter
	for _, f := range m.Fields {
		counters = append(counters, collector.Counter{Name: strings.TrimSpace(f.Name), Type: strings.TrimSpace(f.Type), Help: strings.TrimSpace(f.Help)})
	}
	if err := collector.CheckCounters(counters); err != nil {
		return fmt.Errorf("metrics.fields: %w", err)
	}
	if o.counterFileFlag.isSet() || o.configMapFlag.isSet() {
		return nil
	}
	o.inlineCounters = counters
	if m.File != "" {
		o.counterFile = m.File
	}
	return nil
}

// applySchedule applies the interval between collections. In version 2 it is that of the
// collection that includes all fields.
func (o *options) applySchedule(c *configFile, log *slog.Logger) error {
	every, key := "", ""
	if c.Collection != nil {
		every, key = c.Collection.Interval, "collection.interval"
		if len(c.Collection.WatchGroups) > 0 {
			warnIgnored(log, "collection.watchGroups", "all fields have the same interval")
		}
	}
	for i, collection := range c.Collections {
		path := fmt.Sprintf("collections[%d]", i)
		if collection.Name == "" || len(collection.Metrics.Include) == 0 {
			return fmt.Errorf("%s must have a name and metrics.include", path)
		}
		if _, err := parseMilliseconds(collection.Every); err != nil {
			return fmt.Errorf("%s.every %w", path, err)
		}
		if !slices.Equal(collection.Metrics.Include, []string{"*"}) {
			warnIgnored(log, path+" ("+collection.Name+")", "all fields have the same interval")
			continue
		}
		if every != "" {
			return fmt.Errorf("%s is the second one that includes all fields", path)
		}
		every, key = collection.Every, path+".every"
	}
	if every == "" {
		return nil
	}
	interval, err := parseMilliseconds(every)
	if err != nil {
		return fmt.Errorf("%s %w", key, err)
	}
	if !o.intervalFlag.isSet() {
		o.interval = interval
	}
	return nil
}

func parseMilliseconds(text string) (int, error) {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || d < time.Millisecond || d%time.Millisecond != 0 {
		return 0, fmt.Errorf("must be a duration in whole milliseconds such as 30s, not %q", text)
	}
	return int(d / time.Millisecond), nil
}

func warnIgnored(log *slog.Logger, setting, reason string) {
	log.Warn("ignoring a setting of the configuration file", "setting", setting, "reason", reason)
}
