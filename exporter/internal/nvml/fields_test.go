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
