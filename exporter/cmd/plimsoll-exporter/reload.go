package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
)

// choose what the counter file asks for.
func (o *options) choose(c *collector.Collector, log *slog.Logger) error {
	if o.counters == "" {
		return nil
	}
	text, err := os.ReadFile(o.counters)
	o.seen = string(text)
	if err != nil {
		return fmt.Errorf("counter file: %w", err)
	}
	counters, err := collector.ParseCounters(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("counter file %s: %w", o.counters, err)
	}
	if unsupported := c.SetCounters(counters); len(unsupported) > 0 {
		log.Warn("fields of the counter file that can't be given; plimsoll_exporter_unsupported_field names them", "fields", unsupported)
	}
	return nil
}

// changed tells whether the counter file is another one than choose last read. A
// file that can't be read is an empty one: choose says why.
func (o *options) changed() bool {
	if o.counters == "" {
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
		if err := o.choose(c, log); err != nil {
			log.Error("not reloaded; what was exposed stays", "err", err)
			continue
		}
		log.Info("reloaded")
	}
}
