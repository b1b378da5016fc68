package sim

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// valuesOver reads the device at index for n seconds and returns all values.
func valuesOver(t *testing.T, s *Source, n, index int) []float64 {
	t.Helper()
	clock := time.Unix(1_700_000_000, 0)
	s.now = func() time.Time { return clock }
	var values []float64
	for range n {
		clock = clock.Add(time.Second)
		r := readDevice(t, s, index)
		for f := range device.NumFields {
			if v, ok := r.Get(f); ok {
				values = append(values, v)
			}
		}
	}
	return values
}

func TestValuesDependOnSeed(t *testing.T) {
	path := writeState(t, twoDevices)
	allocated := func(string) bool { return true }
	a, b := valuesOver(t, FromFile(path, allocated, discardLog), 20, 0), valuesOver(t, FromFile(path, allocated, discardLog), 20, 0)
	if len(a) == 0 || !slices.Equal(a, b) {
		t.Fatalf("two sources with the same seed have %d and %d values, want the same values", len(a), len(b))
	}
	c := valuesOver(t, FromFile(writeState(t, strings.Replace(twoDevices, "7", "8", 1)), allocated, discardLog), 20, 0)
	if slices.Equal(a, c) {
		t.Fatal("another seed has the same values")
	}
}

func TestAllocationRaisesUtilization(t *testing.T) {
	allocated := true
	s := FromFile(writeState(t, twoDevices), func(uuid string) bool { return allocated && uuid == "GPU-a" }, discardLog)
	clock := time.Unix(1_700_000_000, 0)
	s.now = func() time.Time { return clock }
	utilization := func(index int) float64 {
		var last float64
		for range 10 {
			clock = clock.Add(time.Second)
			r := readDevice(t, s, index)
			last, _ = r.Get(device.GPUUtil)
		}
		return last
	}
	if got := utilization(0); got < 85 {
		t.Errorf("utilization of the allocated device is %g%%, want at least 85%%", got)
	}
	if got := utilization(1); got != 0 {
		t.Errorf("utilization of the free device is %g%%, want 0%%", got)
	}
	allocated = false
	if got := utilization(0); got > 1 {
		t.Errorf("utilization after the release of the device is %g%%, want at most 1%%", got)
	}
}

func TestFromFileKeepsLastValidState(t *testing.T) {
	path := writeState(t, twoDevices)
	s := FromFile(path, notAllocated, discardLog)
	if _, err := s.Devices(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"devices":[{"uuid":"GPU-a","model":"m","memoryMiB":1,"state":"sad"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	devices, err := s.Devices(t.Context())
	if err != nil || len(devices) != 2 {
		t.Fatalf("after an invalid write there are %d devices, %v; want 2", len(devices), err)
	}
	_, err = FromFile(path, notAllocated, discardLog).Devices(t.Context())
	if err == nil || !strings.Contains(err.Error(), `must be ok, lost or hung, not "sad"`) {
		t.Fatalf("invalid state at the start: got error %v", err)
	}
}
