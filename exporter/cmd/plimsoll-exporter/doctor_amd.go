package main

import (
	"context"
	"fmt"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// checkAMD checks the sensors of AMD GPUs.
func checkAMD(ctx context.Context, check string, source collector.NamedSource, devices []device.Device) []finding {
	findings := []finding{{check: check, detail: fmt.Sprintf("%d, found in sysfs", len(devices))}}
	for _, d := range devices {
		f := finding{check: fmt.Sprintf("device %d, %s, %s", d.Index, d.Model, d.UUID)}
		var reading device.Reading
		if reading, f.err = source.Read(ctx, d); f.err == nil {
			provided, missing := collector.SensorCoverage(reading)
			f.detail = fmt.Sprintf("provides %d of %d metrics", provided, provided+len(missing))
			if len(missing) > 0 {
				f.detail += "; missing: " + strings.Join(missing, " ")
			}
			if n := len(reading.Instances); n > 0 {
				f.detail += fmt.Sprintf("; %d partitions %s", n, reading.Instances[0].Instance.Profile)
			}
		}
		findings = append(findings, f)
	}
	return findings
}
