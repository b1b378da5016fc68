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

// Devices of different cliques are not connected, although both have links to switches.
// Before a device has joined the fabric, its links do not work.
func TestLinkEndsFollowFabric(t *testing.T) {
	join := func(status float64, cluster string, clique float64) device.Reading {
		r := device.Reading{FabricCluster: cluster}
		r.Set(device.FabricStatus, status)
		if clique >= 0 {
			r.Set(device.FabricClique, clique)
		}
		return r
	}
	for name, tc := range map[string]struct {
		readings []device.Reading
		size     int
	}{
		"no fabric":              {[]device.Reading{{}, {}, {}}, 3},
		"not supported":          {[]device.Reading{join(0, "", -1), join(0, "", -1)}, 2},
		"one clique":             {[]device.Reading{join(3, "a", 1), join(3, "a", 1), join(3, "a", 1)}, 3},
		"two cliques":            {[]device.Reading{join(3, "a", 1), join(3, "a", 2), join(3, "a", 2)}, 2},
		"two clusters":           {[]device.Reading{join(3, "a", 1), join(3, "b", 1)}, 1},
		"one is in progress":     {[]device.Reading{join(3, "a", 1), join(2, "", -1), join(3, "a", 1)}, 2},
		"the manager has failed": {[]device.Reading{join(4, "", -1), join(4, "", -1)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var devices []device.Device
			for i, r := range tc.readings {
				d := device.Device{PCIBusID: string(rune('1' + i)), Links: []string{device.NVSwitch}}
				d.Links = linkEnds(d, r)
				devices = append(devices, d)
			}
			if size := largestGroup(devices); size != tc.size {
				t.Errorf("%d, want %d", size, tc.size)
			}
		})
	}
}
