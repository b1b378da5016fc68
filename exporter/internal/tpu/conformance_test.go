package tpu

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/device/conformance"
)

// listingSource lists the devices before every reading, like the collector.
type listingSource struct{ *Source }

func (l listingSource) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	if _, err := l.Devices(ctx); err != nil {
		return device.Reading{}, err
	}
	return l.Source.Read(ctx, d)
}

func TestSourceConforms(t *testing.T) {
	for _, tc := range []struct {
		name    string
		metrics map[string]string
	}{
		{"idle", nil},
		{"busy", map[string]string{
			memoryTotal: gauges(0, "as_int", 1<<34, 1<<34, 1<<34), memoryUsed: gauges(0, "as_int", 0, 1, 2), dutyCycle: gauges(0, "as_double", 10, 20, 30),
			queueSize: gauges(0, "as_int", 0, 1, 2), idleSeconds: gauges(0, "as_double", 0, 0.5, 100), uptimeSeconds: `metrics{gauge{as_int:7}}`, sliceError: `metrics{gauge{as_int:0}}`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			address := "127.0.0.1:1" // nothing listens on port 1
			if tc.metrics != nil {
				address = startRuntime(t, tc.metrics).address
			}
			conformance.Test(t, func(t *testing.T) conformance.Subject {
				sysfs := fakeSysfs(t, "0x0063", "0x0063", "0x0063")
				s := newSource(sysfs, address)
				clock := time.Now()
				s.now = func() time.Time { clock = clock.Add(time.Millisecond); return clock }
				return conformance.Subject{Source: listingSource{s}, Advance: func(d time.Duration) { clock = clock.Add(d) }, Lose: func(d device.Device) {
					if err := os.RemoveAll(filepath.Join(sysfs, "bus/pci/devices", d.PCIBusID)); err != nil {
						t.Error(err)
					}
				}}
			})
		})
	}
}
