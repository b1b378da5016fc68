package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// inspectTPUs says what the chips and the services beside them tell.
func inspectTPUs(ctx context.Context, what string, source collector.NamedSource, devices []device.Device) []finding {
	findings := []finding{{what: what, more: fmt.Sprintf("%d, found in sysfs", len(devices))}}
	for _, d := range devices {
		f := finding{what: fmt.Sprintf("device %d, %s, %s", d.Index, d.Model, d.UUID)}
		var reading device.Reading
		if reading, f.err = source.Read(ctx, d); f.err == nil {
			f.more, f.err = chip(d, reading)
		}
		findings = append(findings, f)
	}
	reporter, ok := source.Source.(device.ServiceReporter)
	if !ok {
		return findings
	}
	plugin := false
	for _, s := range reporter.Services() {
		findings = append(findings, service(s))
		plugin = plugin || s.Name == "plugin"
	}
	if !plugin {
		findings = append(findings, finding{what: "metrics of the TPU device plugin", more: "not asked; --tpu-plugin-metrics relays tensorcore_utilization, which only it knows"})
	}
	return findings
}

// chip says what is known of one.
func chip(d device.Device, r device.Reading) (string, error) {
	if d.Minor == "" {
		return "", errors.New("it has no device node: no driver is bound to it, so no workload can use it")
	}
	workload, known := r.Get(device.Workload)
	switch {
	case !known:
		return "it is there; what it does is not told", nil
	case workload == 0:
		return "idle: no workload's runtime answers for it, so it tells its memory and that it is there", nil
	}
	gives, lacks := collector.TPUCoverage(r)
	more := fmt.Sprintf("a workload's runtime answers; gives %d of %d metrics", gives, gives+len(lacks))
	if len(lacks) > 0 {
		more += "; it does not tell " + strings.Join(lacks, " ")
	}
	return more, nil
}

// service says what one tells, or why it does not.
func service(s device.Service) finding {
	f := finding{what: "TPU " + s.Name + " on " + s.Address, more: "serves"}
	switch {
	case s.State == device.ServiceFailed:
		f.err = s.Err
	case s.State == device.ServiceIdle && s.Name == "runtime":
		f.more = s.Err.Error() + "; it does while a workload runs that uses libtpu"
	case s.State == device.ServiceIdle:
		f.more = s.Err.Error()
	case s.Err != nil:
		f.more += ", without " + s.Err.Error()
	}
	return f
}
