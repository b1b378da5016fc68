package rebalance

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
)

// A move makes room for a pod only if its node then has the CPU and memory, too. The moved pods return theirs.
func TestPodsWithoutCountsCPUAndMemory(t *testing.T) {
	const gi = 1 << 30
	owner := reclaim.Owner{Cluster: "c1", Name: "small"}
	node := Node{Cluster: "c1", Name: "n1"}
	for _, tc := range []struct {
		name        string
		cpu, memory int64 // left on the node; -1 = not known
		returned    shape.Requests
		pods, more  int64
	}{
		{"nothing known", -1, -1, shape.Requests{}, 1, 1},
		{"enough left", 64_000, 256 * gi, shape.Requests{}, 1, 1},
		{"enough with what the moved pods return", 48_000, 192 * gi, shape.Requests{MilliCPU: 8000, Memory: 32 * gi}, 1, 1},
		{"too little CPU", 48_000, 256 * gi, shape.Requests{MilliCPU: 7999}, 0, 0},
		{"too little memory", 64_000, 192*gi - 1, shape.Requests{MilliCPU: 8000, Memory: 32 * gi}, 0, 0},
		{"CPU not known", -1, 255 * gi, shape.Requests{}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &Devices{Free: map[string]map[Node]int64{gpu: {{"c1", "n1", h100}: 6, {"c2", "n1", h100}: 8}},
				Allocated:   map[reclaim.Owner]map[Node]int64{owner: {{"c1", "n1", h100}: 2}},
				Unrequested: map[string]map[Node]int64{ResourceCPU: {}, ResourceMemory: {}}}
			if tc.cpu >= 0 {
				d.Unrequested[ResourceCPU][node] = tc.cpu
			}
			if tc.memory >= 0 {
				d.Unrequested[ResourceMemory][node] = tc.memory
			}
			c := &reclaim.Candidate{Owner: owner, Resource: gpu, Devices: 2, Requests: tc.returned}
			p := shape.PodSet{Resource: gpu, Model: h100, DevicesPerPod: 8, Pods: 1, Requests: shape.Requests{MilliCPU: 64_000, Memory: 256 * gi}}
			if pods, more := d.podsWithout(c, p); pods != tc.pods || more != tc.more {
				t.Errorf("%d pods, %d more, want %d and %d", pods, more, tc.pods, tc.more)
			}
		})
	}
}
