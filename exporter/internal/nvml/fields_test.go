package nvml

import (
	"fmt"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestSlowdownCountersFollowDriverVersion(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	for driver, want := range map[uint64]float64{550: 0, 570: 251e9, 580: 251e9, 590: 0, 595: 269e9, 600: 269e9} {
		t.Run(fmt.Sprintf("driver %d", driver), func(t *testing.T) {
			f.set(wordDriver, driver)
			s := f.open()
			r := readDevice(t, s, listDevices(t, s)[0])
			if got, ok := r.Get(device.SWThermalSlowdown); got != want || ok != (want > 0) {
				t.Errorf("software slowdown is %g ns (present %t), want %g", got, ok, want)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The counters of a device with fast links exceed 63 bits in bytes after months.
func TestNVLinkCountersOfLongUptime(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	const kib = 1 << 54
	f.setDevice(0, devNVLink, kib)
	f.setDevice(1, devNVLink, 1<<64-1-1024) // near the pattern by which a driver means "unknown"
	s := f.open()
	devices := listDevices(t, s)
	r := readDevice(t, s, devices[0])
	expectValue(t, r, device.NVLinkTx, float64(kib+138)*1024)
	expectValue(t, r, device.NVLinkRx, float64(kib+139)*1024)
	expectAbsent(t, readDevice(t, s, devices[1]), device.NVLinkTx)
}
