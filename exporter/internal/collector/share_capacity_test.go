package collector

import (
	"fmt"
	"runtime"
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

// No pod gets a replica of a device in MIG mode: its memory is that of its instances. Its plugin offers
// replicas from before the mode changed. Replicas of an instance count.
func TestNoSharesOfPartitionedDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		offered   string
		instances []device.Instance
		set       func(r *device.Reading)
		shares    bool
	}{
		"no MIG":                  {uuid(0), nil, func(*device.Reading) {}, true},
		"MIG mode":                {uuid(0), nil, func(r *device.Reading) { r.MIG = true }, false},
		"an unknown mode":         {uuid(0), nil, func(r *device.Reading) { r.PartitionsUnknown = true }, false},
		"replicas of an instance": {migUUID(0, 7, 0), []device.Instance{{GI: 7, Profile: "1g.10gb"}}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.source.instances = tc.instances
			if tc.set != nil {
				f.source.override = func(_ device.Device, r *device.Reading) { r.Set(device.FBTotal, 81559); tc.set(r) }
			}
			f.kubelet.noDevices = true
			for i := range 4 {
				f.kubelet.ids = append(f.kubelet.ids, fmt.Sprintf("%s::%d", tc.offered, i))
			}
			families, text := f.collect(t)
			if got := families["plimsoll_device_share_capacity"] != nil && families["plimsoll_device_share_allocated"] != nil; got != tc.shares {
				t.Errorf("the device has shares: %t, want %t:\n%s", got, tc.shares, text)
			}
		})
	}
}

// Before its first reading, nothing says whether a device is in MIG mode.
func TestNoSharesBeforeFirstReading(t *testing.T) {
	one := &fakeSource{hung: map[string]chan struct{}{uuid(0): make(chan struct{})}}
	f := setupTwoVendors(t, one, &singleSource{uuid: "GPU-two"})
	f.kubelet.ids = []string{uuid(0) + "::0", uuid(0) + "::1"}
	f.pollPods(t.Context())
	collected := make(chan error)
	go func() { collected <- f.Collector.collect(t.Context(), f.vendors[0]) }()
	for isRead := false; !isRead; runtime.Gosched() {
		one.mu.Lock()
		isRead = one.reads[uuid(0)] > 0
		one.mu.Unlock()
	}
	if err := f.Collector.collect(t.Context(), f.vendors[1]); err != nil {
		t.Fatal(err)
	}
	if families, _ := f.scrape(t); families["plimsoll_device_share_capacity"] != nil {
		t.Error("the device has shares")
	}
	close(one.hung[uuid(0)])
	if err := <-collected; err != nil {
		t.Fatal(err)
	}
	if families, _ := f.scrape(t); value(t, families, "plimsoll_device_share_capacity", "uuid", uuid(0)) != 2 {
		t.Error("the device has no shares after its first reading")
	}
}
