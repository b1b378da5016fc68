package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// finding is one thing that a node gives or can't give.
type finding struct {
	what string
	err  error  // why it is missing
	more string // what was seen

	without string // why it is not given although nothing is amiss

	absent bool // no device at all, of a source that need not be there
}

// doctor asks the node once and says what it gives.
func (o *options) doctor(ctx context.Context) error {
	var warned bytes.Buffer
	pods, sources, err := o.prepare(slog.New(slog.NewTextHandler(&warned, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: untimed})))
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(closeAll(sources), pods.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	holders := o.holders(ctx, pods) // first: what a TPU's runtime tells is of the chips that are held
	findings := append(inspect(ctx, sources), holders, inspectProcesses(o.pods.procfs))
	if o.asksForPods() {
		findings = append(findings, o.metadata(ctx))
	}
	for line := range strings.Lines(warned.String()) {
		findings = append(findings, finding{what: "warning", err: errors.New(strings.TrimSpace(line))})
	}
	return report(os.Stdout, o.output, findings)
}

// untimed leaves of a log line what it says.
func untimed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// holders asks the kubelet.
func (o *options) holders(ctx context.Context, pods *podmap.Poller) finding {
	if !o.kubernetes {
		return finding{what: "who holds devices", more: "not asked, because of --no-kubernetes"}
	}
	f := finding{what: "who holds devices"}
	if _, f.err = os.Stat(o.socket); f.err != nil {
		f.err = fmt.Errorf("the kubelet's socket: %w; is its folder mounted?", f.err)
		return f
	}
	if f.err = pods.Poll(ctx); f.err != nil {
		f.err = fmt.Errorf("%w; may this user open %s, and is the kubelet running?", f.err, o.socket)
	}
	m, _ := pods.Last() // the error is the same
	f.more = fmt.Sprintf("%d devices allocatable, %d held", len(m.Allocatable), len(m.Holders))
	return f
}

// inspect every source. Where there are devices of one vendor, another's are not missing.
func inspect(ctx context.Context, sources []collector.NamedSource) []finding {
	var findings []finding
	there := false
	for _, s := range sources {
		of := inspectOne(ctx, s)
		there = there || of[0].err == nil
		findings = append(findings, of...)
	}
	for i, f := range findings {
		if there && f.absent {
			findings[i] = finding{what: f.what, more: "none on this node, it seems: " + f.err.Error()}
		}
	}
	return findings
}

// inspectOne lists and reads every device.
func inspectOne(ctx context.Context, source collector.NamedSource) []finding {
	what := map[string]string{"nvml": "NVIDIA devices", "tpu": "TPUs", "sim": "simulated devices"}[source.Name]
	devices, err := source.Devices(ctx)
	if err == nil && len(devices) == 0 {
		err = errors.New("the driver answers, and lists none")
	}
	if err != nil {
		return []finding{{what: what, err: err, absent: true}}
	}
	if devices[0].TPU != nil {
		return inspectTPUs(ctx, what, source, devices)
	}
	findings := []finding{{what: what, more: fmt.Sprintf("%d, driver %s", len(devices), orNone(devices[0].Driver))}}
	var answering []seen
	said := ""
	for _, d := range devices {
		f := finding{what: fmt.Sprintf("device %d, %s, %s", d.Index, d.Model, d.UUID)}
		reading, err := readTwice(ctx, source, d)
		gives, lacks := collector.Coverage(reading)
		f.err, f.more = err, fmt.Sprintf("gives %d of %d metrics", gives, gives+len(lacks))
		if err == nil {
			answering = append(answering, seen{d, reading})
		}
		if lack := strings.Join(lacks, " "); err == nil && lack != said {
			f.more += "; it does not tell " + lack
			said = lack
		}
		findings = append(findings, f)
	}
	has := func(string) bool { return true }
	if library, ok := source.Source.(interface{ Has(symbol string) bool }); ok {
		has = library.Has
	}
	return append(findings, inspectGroups(answering, has)...)
}

// readTwice tells also what is measured between two readings.
func readTwice(ctx context.Context, source device.Source, d device.Device) (device.Reading, error) {
	if reading, err := source.Read(ctx, d); err != nil {
		return reading, err
	}
	select {
	case <-ctx.Done():
		return device.Reading{}, ctx.Err()
	case <-time.After(150 * time.Millisecond): // GPM wants 100 at least
		return source.Read(ctx, d)
	}
}

func orNone(version string) string {
	if version == "" {
		return "of unknown version"
	}
	return version
}

// MarshalJSON writes what, ok, and seen, missing, or why it is done without.
func (f finding) MarshalJSON() ([]byte, error) {
	out := struct {
		What    string `json:"what"`
		OK      bool   `json:"ok"`
		Seen    string `json:"seen,omitempty"`
		Without string `json:"without,omitempty"`
		Missing string `json:"missing,omitempty"`
	}{What: f.what, OK: f.err == nil, Seen: f.more, Without: f.without}
	if f.err != nil {
		out.Seen, out.Missing = "", f.err.Error()
	}
	return json.Marshal(out)
}

// report the findings as text or json; an error when something is missing.
func report(out io.Writer, format string, findings []finding) error {
	missing := 0
	for _, f := range findings {
		line := fmt.Sprintf("ok       %s: %s\n", f.what, f.more)
		if f.without != "" {
			line = fmt.Sprintf("without  %s: %s\n", f.what, f.without)
		}
		if f.err != nil {
			missing++
			line = fmt.Sprintf("missing  %s: %v\n", f.what, f.err)
		}
		if format != "json" {
			fmt.Fprint(out, line)
		}
	}
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(findings); err != nil {
			return err
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d things are missing; the exporter serves the rest all the same", missing, len(findings))
	}
	return nil
}
