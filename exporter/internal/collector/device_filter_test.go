package collector

import (
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestDeviceFilterSelectsDevices(t *testing.T) {
	f := setup(t)
	f.source.instances = []device.Instance{{Profile: "1g.10gb", GI: 1}, {Profile: "1g.10gb", GI: 2}}
	for filter, want := range map[string]string{"f": "1 2 3 4 5 6 7 i1 i2", "g": "0 1 2 3 4 5 6 7", "g:0,2-4": "0 2 3 4", "i": "i1 i2", "i:2": "i2", "i:0,1": "i1", "g:9": "",
		"g+i": "0 1 2 3 4 5 6 7 i1 i2", "g:0,1+i": "0 1 i1 i2", "g:0+i:2": "0 i2", "i:1+g:3-4": "3 4 i1"} {
		t.Run(filter, func(t *testing.T) {
			var err error
			if f.cfg.Labels.Devices, err = ParseDeviceFilter(filter); err != nil {
				t.Fatal(err)
			}
			families, text := f.collect(t)
			got := selectedDevices(text)
			if got != want {
				t.Errorf("selects %q, want %q", got, want)
			}
			if strings.HasPrefix(want, "0") && value(t, families, "DCGM_FI_DEV_FB_FREE", "UUID", uuid(0)) != 80_000 {
				t.Errorf("the device has no memory:\n%s", text)
			}
			if filter == "f" && value(t, families, "DCGM_FI_DEV_POWER_USAGE", "UUID", uuid(0)) != 300 {
				t.Errorf("the device has no power:\n%s", text)
			}
			if value(t, families, "plimsoll_node_devices", "state", "allocatable") != 8 {
				t.Error("devices outside of the filter are not counted")
			}
		})
	}
	for _, invalid := range []string{"", "x", "f:1", "g:", "g:a", "g:3-1", "g:-1", "i:0,", "g:0-9999999", "g+", "+i", "g+g", "i:1+i:2", "f+g", "g:0:1", "g+x"} {
		if _, err := ParseDeviceFilter(invalid); err == nil {
			t.Errorf("%q is accepted", invalid)
		}
	}
}

// selectedDevices returns the devices with dcgm-exporter's metrics, sorted: the index of
// a device, or i and the id of a GPU instance.
func selectedDevices(text string) string {
	var selected []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, `DCGM_FI_DEV_XID_ERRORS{gpu="`); ok {
			name := rest[:1]
			if _, after, found := strings.Cut(line, `GPU_I_ID="`); found {
				name = "i" + after[:1]
			}
			selected = append(selected, name)
		}
	}
	slices.Sort(selected)
	return strings.Join(selected, " ")
}
