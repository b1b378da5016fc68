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

// allCounters instead of a file exposes everything.
const allCounters = "all"

const defaultCounters = "/etc/dcgm-exporter/default-counters.csv"

// inImage are the counter files of dcgm-exporter's image, one of which its chart
// names. They ask for the same; so does the exporter where they are not there.
var inImage = []string{"", defaultCounters, "/etc/dcgm-exporter/dcp-metrics-included.csv"}

// choose what the counter file asks for.
func (o *options) choose(ctx context.Context, c *collector.Collector, log *slog.Logger) error {
	where, text, err := o.counterText(ctx, log)
	switch {
	case err != nil:
		return err
	case where == "" && o.counters == allCounters:
		c.SetEverything()
		return nil
	case where == "":
		c.SetDefaults()
		return nil
	}
	counters, err := collector.ParseCounters(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if unsupported := c.SetCounters(counters); len(unsupported) > 0 {
		log.Warn("fields of the counter file that can't be given; plimsoll_exporter_unsupported_field names them", "fields", unsupported)
	}
	return nil
}

// noConfigMap is how dcgm-exporter says that there is none.
const noConfigMap = "none"

// counterText is what a ConfigMap says, else the counter file; where is "" without
// either, and for one that need not be there.
func (o *options) counterText(ctx context.Context, log *slog.Logger) (where, text string, err error) {
	if o.configMap != "" && o.configMap != noConfigMap {
		if text, err = o.readConfigMap(ctx); err == nil {
			return "ConfigMap " + o.configMap, text, nil
		}
		log.Warn("the counters' ConfigMap can't be read; going on with --collectors", "err", err)
	}
	if o.counters == allCounters {
		return "", "", nil
	}
	file, err := os.ReadFile(o.counters)
	o.seen = string(file)
	if errors.Is(err, fs.ErrNotExist) && slices.Contains(inImage, o.counters) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("counter file: %w", err)
	}
	return "counter file " + o.counters, o.seen, nil
}

func (o *options) readConfigMap(ctx context.Context) (string, error) {
	namespace, name, ok := strings.Cut(o.configMap, ":")
	if !ok || namespace == "" || name == "" {
		return "", fmt.Errorf("--configmap-data must be NAMESPACE:NAME, not %q", o.configMap)
	}
	server, err := o.pods.server()
	if err != nil {
		return "", err
	}
	return kube.ConfigMap(ctx, server, namespace, name, "metrics")
}

// changed tells whether the counter file is another one than choose last read. A
// file that can't be read is an empty one: choose says why.
func (o *options) changed() bool {
	if o.counters == allCounters {
		return false
	}
	text, _ := os.ReadFile(o.counters)
	return string(text) != o.seen
}

// reload the counter file on SIGHUP, and when it changes; one that is wrong
// changes nothing, and is told once.
func (o *options) reload(ctx context.Context, c *collector.Collector, hangups <-chan os.Signal, log *slog.Logger) {
	tick := time.NewTicker(time.Duration(o.interval) * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		case <-tick.C:
			if !o.changed() {
				continue
			}
		}
		if err := o.choose(ctx, c, log); err != nil {
			log.Error("not reloaded; what was exposed stays", "err", err)
			continue
		}
		log.Info("reloaded")
	}
}
