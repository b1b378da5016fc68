package nvml

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// The device refreshes its GPM counters every gpmMinInterval.
func TestGPMSamplesKeepMinimumInterval(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	readAt := s.readerAt(t, listDevices(t, s)[0])
	readAt(0)
	expectAbsent(t, readAt(99*time.Millisecond), device.TensorActive)
	expectValue(t, readAt(100*time.Millisecond), device.TensorActive, 0.45)
	f.setDevice(0, devGPM, 20)
	expectValue(t, readAt(150*time.Millisecond), device.TensorActive, 0.45)
	expectValue(t, readAt(200*time.Millisecond), device.TensorActive, 0.25)
	if n := f.get(wordSamples); n != 2 {
		t.Errorf("%d samples are allocated, want 2", n)
	}
	if err := s.Close(); err != nil || f.get(wordSamples) != 0 {
		t.Errorf("%d samples are allocated after Close, want 0: %v", f.get(wordSamples), err)
	}
}

// In MIG mode the driver reports GPM metrics per GPU instance, shared by its compute
// instances.
func TestGPMOfMIGInstances(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(0, 0, fakeInstance{1, 1, 10, 7, 0}, fakeInstance{2, 1, 20, 5, 0}, fakeInstance{2, 1, 20, 5, 1})
	s := f.open()
	d := listDevices(t, s)[0]
	now := time.Unix(1_800_000_000, 0)
	s.now = func() time.Time { return now }
	tick := func() (readings []device.Reading) {
		now = now.Add(time.Second)
		for _, i := range readDevice(t, s, d).Instances {
			readings = append(readings, readDevice(t, s, i))
		}
		return readings
	}
	for _, r := range tick() {
		expectAbsent(t, r, device.EngineActive) // needs two readings
	}
	for i, r := range tick() {
		gi := []float64{7, 5, 5}[i] / 100
		for field, v := range map[device.Field]float64{device.EngineActive: 0.41, device.SMActive: 0.42, device.SMOccupancy: 0.43, device.TensorActive: 0.45, device.DRAMActive: 0.5} {
			expectValue(t, r, field, v+gi)
		}
		expectAbsent(t, r, device.PCIeTx)
	}
	// An instance with another profile reuses a GPU instance ID. Its samples start over.
	f.partition(0, 0, fakeInstance{3, 3, 40, 5, 0})
	expectAbsent(t, tick()[0], device.EngineActive)
	expectValue(t, tick()[0], device.EngineActive, 0.46)
	if n := f.get(wordSamples); n != 4 {
		t.Errorf("%d samples are allocated, want 2 for the device and 2 for its instance", n)
	}
	if err := s.Close(); err != nil || f.get(wordSamples) != 0 {
		t.Errorf("%d samples are allocated after Close, want 0: %v", f.get(wordSamples), err)
	}
}
