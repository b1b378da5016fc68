package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/kube"
)

const (
	// allCounters as --collectors selects every metric.
	allCounters = "all"
	// noConfigMap is dcgm-exporter's value of --configmap-data for no ConfigMap.
	noConfigMap = "none"

	defaultCounterFile = "/etc/dcgm-exporter/default-counters.csv"

	// maxCounterFileSize is the size of a counter file in bytes. It is also that of the
	// largest ConfigMap.
	maxCounterFileSize = 1 << 20
)

// version1CounterFile is the counter file in dcgm-exporter's image with the names of its
// first version.
const version1CounterFile = "/etc/dcgm-exporter/1.x-compatibility-metrics.csv"

// builtInCounterFiles are the counter files in dcgm-exporter's image. The exporter selects
// the same metrics if the files do not exist. All but the last select the default metrics.
var builtInCounterFiles = []string{"", defaultCounterFile, "/etc/dcgm-exporter/dcp-metrics-included.csv", version1CounterFile}

// selectCounters selects the metrics of the configuration file, the ConfigMap or the
// counter file.
func (o *options) selectCounters(ctx context.Context, c *collector.Collector, log *slog.Logger) error {
	if o.inlineCounters != nil {
		setCounters(c, o.inlineCounters, log)
		return nil
	}
	origin, text, err := o.readCounters(ctx, log)
	switch {
	case err != nil:
		return err
	case origin == "" && o.counterFile == allCounters:
		c.SetEverything()
		return nil
	case origin == "" && o.counterFile == version1CounterFile:
		setCounters(c, collector.Version1Counters(), log)
		return nil
	case origin == "":
		c.SetDefaults()
		return nil
	}
	counters, repeated, err := collector.ParseCounters(text)
	if err != nil {
		return fmt.Errorf("%s: %w", origin, err)
	}
	if len(repeated) > 0 {
		log.Warn("the counter file repeats fields; the first line of each counts", "fields", repeated)
	}
	setCounters(c, counters, log)
	return nil
}

func setCounters(c *collector.Collector, counters []collector.Counter, log *slog.Logger) {
	if unsupported := c.SetCounters(counters); len(unsupported) > 0 {
		log.Warn("the counter file contains unsupported fields; see plimsoll_exporter_unsupported_field", "fields", unsupported)
	}
}

// readCounters reads the ConfigMap, or the counter file if the ConfigMap is not set or has
// never been readable. origin describes the source for error messages. It is empty for
// --collectors=all, and for a built-in counter file that does not exist.
func (o *options) readCounters(ctx context.Context, log *slog.Logger) (origin, text string, err error) {
	if o.configMap != "" && o.configMap != noConfigMap {
		if text, err = o.readConfigMap(ctx); err == nil {
			o.fromConfigMap = true
			return "ConfigMap " + o.configMap, text, nil
		}
		if o.fromConfigMap {
			return "", "", fmt.Errorf("--configmap-data: %w", err)
		}
		log.Warn("cannot read the ConfigMap of --configmap-data; using --collectors", "err", err)
	}
	if o.counterFile == allCounters {
		return "", "", nil
	}
	o.lastCounterText, err = readRegularFile(o.counterFile, maxCounterFileSize)
	if errors.Is(err, fs.ErrNotExist) && slices.Contains(builtInCounterFiles, o.counterFile) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("counter file: %w", err)
	}
	return "counter file " + o.counterFile, o.lastCounterText, nil
}

func (o *options) readConfigMap(ctx context.Context) (string, error) {
	namespace, name, ok := strings.Cut(o.configMap, ":")
	if !ok || namespace == "" || name == "" {
		return "", fmt.Errorf("--configmap-data must be NAMESPACE:NAME, not %q", o.configMap)
	}
	server, err := o.pods.apiServer()
	if err != nil {
		return "", err
	}
	text, err := kube.ReadConfigMapKey(ctx, server, namespace, name, "metrics")
	if counters, _, invalid := collector.ParseCounters(text); err == nil && invalid == nil && len(counters) == 0 {
		err = fmt.Errorf("ConfigMap %s selects no field", o.configMap)
	}
	return text, err
}

// counterFileChanged reports whether the content of the counter file differs from the
// last read. The file does not matter if the counters are those of a ConfigMap. An
// unreadable file counts as empty, and selectCounters returns the error.
func (o *options) counterFileChanged() bool {
	if o.fromConfigMap || o.counterFile == allCounters || o.inlineCounters != nil {
		return false
	}
	text, _ := readRegularFile(o.counterFile, maxCounterFileSize)
	return text != o.lastCounterText
}

// reloadCounters selects the counters again on SIGHUP and after the counter file changes.
// If the new counters are invalid, the selection stays and the error is logged once.
func (o *options) reloadCounters(ctx context.Context, c *collector.Collector, hangups <-chan os.Signal, log *slog.Logger) {
	tick := time.NewTicker(time.Duration(o.interval) * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		case <-tick.C:
			if !o.counterFileChanged() {
				continue
			}
		}
		if err := o.selectCounters(ctx, c, log); err != nil {
			log.Error("cannot reload the counters; keeping the current selection", "err", err)
			continue
		}
		log.Info("reloaded the counters")
	}
}
