package collector

import (
	"fmt"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// TestNoSharesOfDevicesHeldOtherwise: a device plugin offers replicas of a device that a container
// still holds in another way. What is left for replicas is unknown.
func TestNoSharesOfDevicesHeldOtherwise(t *testing.T) {
	for name, tc := range map[string]struct {
		offered  string // format of the ids of device 0
		held     []string
		reserved bool // KAI Scheduler holds the devices
		claimed  bool
		shares   bool
	}{
		"a replica":                         {"%s::%d", []string{uuid(0) + "::0"}, false, false, true},
		"a device, since before it was cut": {"%s::%d", []string{uuid(0)}, false, false, false},
		"a reservation from before":         {"%s::%d", []string{uuid(0)}, true, false, false},
		"a claim":                           {"%s::%d", nil, false, true, false},
		"a replica of HAMi":                 {"%s::%d", []string{uuid(0) + "-0"}, false, false, false},
		"time-slicing, now HAMi":            {"%s-%d", []string{uuid(0) + "::0"}, false, false, false},
		"both":                              {"%s-%d", []string{uuid(0) + "-0", uuid(0) + "::0"}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.source.override = func(_ device.Device, r *device.Reading) { r.Set(device.FBTotal, 81559) }
			f.kubelet.noDevices = true
			for i := range 4 {
				f.kubelet.ids = append(f.kubelet.ids, fmt.Sprintf(tc.offered, uuid(0), i))
			}
			f.kubelet.holdings["ml/a/main"] = tc.held
			if tc.reserved {
				f.kubelet.holdings = map[string][]string{"kai-resource-reservation/r/main": tc.held}
			}
			if tc.claimed {
				f.kubelet.claims = map[string][]string{"ml/b/main": {"gpu-0"}}
			}
			f.cfg.Pods = metaPods{"a": {UID: "a", HAMi: []podmap.Assignment{{Device: uuid(0), Memory: 1 << 30}}}}
			families, _ := f.collect(t)
			if got := families["plimsoll_device_share_capacity"] != nil; got != tc.shares {
				t.Errorf("the device has shares: %t, want %t", got, tc.shares)
			}
		})
	}
}
