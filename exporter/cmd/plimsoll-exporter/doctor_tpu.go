package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// checkTPUs checks the chips and the services that report about them.
func checkTPUs(ctx context.Context, check string, source collector.NamedSource, devices []device.Device) []finding {
	findings := []finding{{check: check, detail: fmt.Sprintf("%d, found in sysfs", len(devices))}}
	for _, d := range devices {
		f := finding{check: fmt.Sprintf("device %d, %s, %s", d.Index, d.Model, d.UUID)}
		var reading device.Reading
		if reading, f.err = source.Read(ctx, d); f.err == nil {
			f.detail, f.err = describeChip(d, reading)
		}
		findings = append(findings, f)
	}
	reporter, ok := source.Source.(device.ServiceReporter)
	if !ok {
		return findings
	}
	hasPlugin := false
	for _, s := range reporter.Services() {
		findings = append(findings, checkService(s))
		hasPlugin = hasPlugin || s.Name == "plugin"
	}
	if !hasPlugin {
		findings = append(findings, finding{check: "TPU device plugin", detail: "not queried; --tpu-plugin-metrics relays tensorcore_utilization, which only the plugin has"})
	}
	return findings
}

// describeChip describes the metrics of a chip. It returns an error if no driver is bound.
func describeChip(d device.Device, r device.Reading) (string, error) {
	if d.Minor == "" {
		return "", errors.New("no device node: no driver is bound to the chip, so workloads cannot use it")
	}
	workload, known := r.Get(device.Workload)
	switch {
	case !known:
		return "present; its activity is unknown", nil
	case workload == 0:
		return "idle: no workload's runtime reports the chip, so only its presence and memory size are known", nil
	}
	provided, missing := collector.TPUCoverage(r)
	detail := fmt.Sprintf("in use by a workload; provides %d of %d metrics", provided, provided+len(missing))
	if len(missing) > 0 {
		detail += "; missing: " + strings.Join(missing, " ")
	}
	return detail, nil
}

// checkService describes the state of a service.
func checkService(s device.Service) finding {
	f := finding{check: "TPU " + s.Name + " at " + s.Address, detail: "serving"}
	switch {
	case s.State == device.ServiceFailed:
		f.err = s.Err
	case s.State == device.ServiceIdle && s.Name == "runtime":
		f.detail = s.Err.Error() + "; expected unless a workload with libtpu is running"
	case s.State == device.ServiceIdle:
		f.detail = s.Err.Error()
	case s.Err != nil:
		f.detail += "; incomplete: " + s.Err.Error()
	}
	return f
}
