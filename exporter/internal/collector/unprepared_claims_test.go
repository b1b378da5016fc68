package collector

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// A claim that is not prepared can be one of any driver whose claims the node has. It is no device of
// a device plugin.
func TestUnpreparedClaimLowersFreeOfItsDrivers(t *testing.T) {
	devices := []*deviceSnapshot{
		{fresh: true, device: device.Device{Vendor: device.AMD, UUID: "AMD-0", Minor: "renderD128", Model: "MI300X"}},
		{fresh: true, device: device.Device{UUID: "GPU-0", Minor: "nvidia0", Model: "NVIDIA H100"}},
		{fresh: true, device: device.Device{UUID: "GPU-1", Minor: "nvidia1", Model: "NVIDIA H100"}},
	}
	for name, tc := range map[string]struct {
		drivers     []string
		allocatable map[string]string
		want        map[string]int // free devices by resource
	}{
		"of AMD":               {[]string{podmap.AMDDriver}, nil, map[string]int{"gpu.amd.com": 0}},
		"of NVIDIA":            {[]string{podmap.NVIDIADriver}, nil, map[string]int{"gpu.nvidia.com": 1}},
		"of both":              {[]string{podmap.AMDDriver, podmap.NVIDIADriver}, nil, map[string]int{"gpu.amd.com": 0, "gpu.nvidia.com": 1}},
		"with a device plugin": {[]string{podmap.AMDDriver}, map[string]string{"GPU-0": "nvidia.com/gpu", "GPU-1": "nvidia.com/gpu"}, map[string]int{"gpu.amd.com": 0, "nvidia.com/gpu": 2}},
		"plugin and expected":  {[]string{podmap.NVIDIADriver}, map[string]string{"GPU-0": "nvidia.com/gpu", "GPU-1": "nvidia.com/gpu"}, map[string]int{"nvidia.com/gpu": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			pods := podmap.Map{Allocatable: tc.allocatable, Allocated: map[string]string{"claim ml/c": ""}, Unprepared: map[string]bool{"claim ml/c": true}, ClaimDrivers: map[string]bool{}}
			for _, driver := range tc.drivers {
				pods.ClaimDrivers[driver] = true
			}
			n := newCensus()
			for _, d := range devices {
				n.countDevice(d, pods)
			}
			n.lowerFree(pods, namesOf(devices))
			if n := countUnlisted(pods, namesOf(devices))[allocatedNotListed]; n != 0 {
				t.Errorf("%g ids belong to no listed device, want none: the driver prepares the claim", n)
			}
			got := map[string]int{}
			for g, free := range n.free {
				got[g.resource] = len(free)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("free devices (-want +got):\n%s", diff)
			}
		})
	}
}
