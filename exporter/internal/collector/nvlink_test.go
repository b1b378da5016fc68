package collector

import (
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestLargestGroup(t *testing.T) {
	at := func(bus string, links ...string) device.Device { return device.Device{PCIBusID: bus, Links: links} }
	for name, tc := range map[string]struct {
		devices []device.Device
		size    int
	}{
		"none":                       {nil, 0},
		"without links":              {[]device.Device{at("1"), at("2")}, 1},
		"a switch connects all":      {[]device.Device{at("1", device.NVSwitch), at("2", device.NVSwitch), at("3", device.NVSwitch)}, 3},
		"one without a switch":       {[]device.Device{at("1", device.NVSwitch), at("2", device.NVSwitch), at("3")}, 2},
		"two bridged pairs":          {[]device.Device{at("1", "2"), at("2", "1"), at("3", "4"), at("4", "3")}, 2},
		"a chain":                    {[]device.Device{at("1", "2"), at("2", "1", "3"), at("3", "2"), at("4", "9")}, 3},
		"a chain without its middle": {[]device.Device{at("1", "2"), at("3", "2")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if size := largestGroup(tc.devices); size != tc.size {
				t.Errorf("%d, want %d", size, tc.size)
			}
		})
	}
}
