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

// finding is the result of one check of the doctor.
type finding struct {
	check        string
	detail       string // result of a successful check
	notAvailable string // reason why the node lacks the metrics although nothing is broken
	err          error  // reason why the check failed

	noDevices bool // the check failed because the source lists no device
}

// runDoctor checks the node once and prints the findings.
func (o *options) runDoctor(ctx context.Context) error {
	var warnings bytes.Buffer
	pods, sources, err := o.prepare(slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: dropTimeAndLevel})))
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(closeAll(sources), pods.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	kubelet := o.checkKubelet(ctx, pods) // before the sources: they look for TPU runtimes of chips with holders
	findings := append(checkSources(ctx, sources), kubelet, checkHostProcesses(o.pods.procfs))
	if o.needsAPIServer() {
		findings = append(findings, o.checkPodMetadata(ctx))
	}
	if o.pods.claimShares {
		findings = append(findings, o.checkClaimShares(ctx))
	}
	for line := range strings.Lines(warnings.String()) {
		findings = append(findings, finding{check: "warning", err: errors.New(strings.TrimSpace(line))})
	}
	return report(os.Stdout, o.output, findings)
}

func dropTimeAndLevel(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// checkKubelet checks that the kubelet reports the holders of devices.
func (o *options) checkKubelet(ctx context.Context, pods *podmap.Poller) finding {
	f := finding{check: "kubelet"}
	if !o.kubernetes {
		f.detail = "not checked because of --no-kubernetes"
		return f
	}
	if _, err := os.Stat(o.kubeletSocket); err != nil {
		f.err = fmt.Errorf("%w; mount the directory of the kubelet socket into the container", err)
		return f
	}
	if err := pods.Poll(ctx); err != nil {
		f.err = fmt.Errorf("%w; check that the kubelet is running and that this user may open %s", err, o.kubeletSocket)
		return f
	}
	m, err := pods.Last()
	if f.err = errors.Join(err, m.AllocatableErr); f.err == nil {
		f.detail = fmt.Sprintf("%d devices allocatable, %d allocated", len(m.Allocatable), len(m.Holders))
	}
	return f
}

// checkSources checks every source. If one source lists devices, other sources may list
// none.
func checkSources(ctx context.Context, sources []collector.NamedSource) []finding {
	var findings []finding
	anyDevices := false
	for _, s := range sources {
		of := checkSource(ctx, s)
		anyDevices = anyDevices || of[0].err == nil
		findings = append(findings, of...)
	}
	for i, f := range findings {
		if anyDevices && f.noDevices {
			findings[i] = finding{check: f.check, detail: "none on this node: " + f.err.Error()}
		}
	}
	return findings
}

// checkSource lists and reads every device of a source.
func checkSource(ctx context.Context, source collector.NamedSource) []finding {
	check := map[string]string{"nvml": "NVIDIA devices", "tpu": "TPUs", "amd": "AMD GPUs", "sim": "simulated devices"}[source.Name]
	devices, err := source.Devices(ctx)
	if err == nil && len(devices) == 0 {
		err = errors.New("the driver lists no device")
	}
	if err != nil {
		return []finding{{check: check, err: err, noDevices: true}}
	}
	if devices[0].TPU != nil {
		return checkTPUs(ctx, check, source, devices)
	}
	if devices[0].Vendor == device.AMD {
		return checkAMD(ctx, check, source, devices)
	}
	findings := []finding{{check: check, detail: fmt.Sprintf("%d, driver version %s", len(devices), orUnknown(devices[0].Driver))}}
	var readable []deviceReading
	reported := ""
	for _, d := range devices {
		f := finding{check: fmt.Sprintf("device %d, %s, %s", d.Index, d.Model, d.UUID)}
		reading, err := readTwice(ctx, source, d)
		provided, missing := collector.Coverage(reading)
		f.err, f.detail = err, fmt.Sprintf("provides %d of %d metrics", provided, provided+len(missing))
		if err == nil {
			readable = append(readable, deviceReading{d, reading})
		}
		// Devices of the same model lack the same metrics. List them once.
		if list := strings.Join(missing, " "); err == nil && list != reported {
			f.detail += "; missing: " + list
			reported = list
		}
		findings = append(findings, f)
	}
	has := func(string) bool { return true }
	if library, ok := source.Source.(interface{ Has(symbol string) bool }); ok {
		has = library.Has
	}
	return append(findings, checkCapabilities(readable, has)...)
}

// readTwice returns the second of two readings, which includes rates.
func readTwice(ctx context.Context, source device.Source, d device.Device) (device.Reading, error) {
	if reading, err := source.Read(ctx, d); err != nil {
		return reading, err
	}
	select {
	case <-ctx.Done():
		return device.Reading{}, ctx.Err()
	case <-time.After(150 * time.Millisecond): // GPM needs at least 100 ms
		return source.Read(ctx, d)
	}
}

func orUnknown(version string) string {
	if version == "" {
		return "unknown"
	}
	return version
}

// Statuses of a finding.
const (
	statusOK           = "ok"
	statusNotAvailable = "n/a"
	statusFailed       = "failed"
)

// status returns the status of a finding and its explanation.
func (f finding) status() (status, detail string) {
	switch {
	case f.err != nil:
		return statusFailed, f.err.Error()
	case f.notAvailable != "":
		return statusNotAvailable, f.notAvailable
	}
	return statusOK, f.detail
}

// MarshalJSON writes the check, its status and the explanation.
func (f finding) MarshalJSON() ([]byte, error) {
	status, detail := f.status()
	return json.Marshal(struct {
		Check  string `json:"check"`
		Status string `json:"status"`
		Detail string `json:"detail"`
	}{f.check, status, detail})
}

// report writes the findings as text or JSON. It returns an error if a check failed.
func report(out io.Writer, format string, findings []finding) error {
	failed := 0
	for _, f := range findings {
		status, detail := f.status()
		if status == statusFailed {
			failed++
		}
		if format != "json" {
			fmt.Fprintf(out, "%-7s %s: %s\n", status, f.check, detail)
		}
	}
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(findings); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed; the exporter serves everything else", failed, len(findings))
	}
	return nil
}
