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

// listing lists the devices before each is read, as the collector does.
type listing struct{ *Source }

func (l listing) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	if _, err := l.Devices(ctx); err != nil {
		return device.Reading{}, err
	}
	return l.Source.Read(ctx, d)
}

func TestChipsConform(t *testing.T) {
	for name, metrics := range map[string]map[string]string{
		"idle": nil,
		"busy": {
			memoryTotal: values(0, "as_int", 1<<34, 1<<34, 1<<34), memoryUsed: values(0, "as_int", 0, 1, 2), dutyCycle: values(0, "as_double", 10, 20, 30),
			queueSize: values(0, "as_int", 0, 1, 2), idleSeconds: values(0, "as_double", 0, 0.5, 100), uptimeSeconds: `metrics{gauge{as_int:7}}`, sliceError: `metrics{gauge{as_int:0}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := "127.0.0.1:1" // where nothing listens
			if metrics != nil {
				address = start(t, metrics).address
			}
			conformance.Test(t, func(t *testing.T) conformance.Subject {
				sysfs := host(t, "0x0063", "0x0063", "0x0063")
				s := source(sysfs, address)
				clock := time.Now()
				s.now = func() time.Time { clock = clock.Add(time.Millisecond); return clock }
				return conformance.Subject{Source: listing{s}, Advance: func(d time.Duration) { clock = clock.Add(d) }, Lose: func(d device.Device) {
					if err := os.RemoveAll(filepath.Join(sysfs, "bus/pci/devices", d.PCIBusID)); err != nil {
						t.Error(err)
					}
				}}
			})
		})
	}
}
