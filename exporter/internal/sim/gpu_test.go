package sim

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// NVML supports GPM since Hopper.
func TestProductLimits(t *testing.T) {
	for _, tc := range []struct {
		model  string
		watts  float64
		hasGPM bool
	}{
		{"NVIDIA L4", 72, false},
		{"NVIDIA A100-SXM4-80GB", 400, false},
		{"NVIDIA H100 80GB HBM3", 700, true},
		{"NVIDIA H200", 700, true},
		{"NVIDIA GB200", 700, true},
	} {
		t.Run(tc.model, func(t *testing.T) {
			s := FromFile(writeState(t, strings.ReplaceAll(twoDevices, "NVIDIA L4", tc.model)), func(string) bool { return true }, discardLog)
			start := time.Now()
			for i := range 20 {
				s.now = func() time.Time { return start.Add(time.Duration(i) * time.Second) }
				r := readDevice(t, s, 0)
				limit, _ := r.Get(device.PowerLimit)
				power, _ := r.Get(device.PowerUsage)
				_, hasGPM := r.Get(device.TensorActive)
				if limit != tc.watts || power > limit || hasGPM != tc.hasGPM {
					t.Errorf("power is %g W of %g W, tensor activity present: %t; want a limit of %g W and %t", power, limit, hasGPM, tc.watts, tc.hasGPM)
				}
			}
		})
	}
}
