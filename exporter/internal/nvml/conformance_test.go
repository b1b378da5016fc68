package nvml

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/device/conformance"
)

// subject returns the fake as a subject of the conformance tests. The devices have an XID
// after the first advance of the clock.
func (f *fake) subject(_ *testing.T) conformance.Subject {
	s := f.open()
	clock := time.Now()
	s.now = func() time.Time { return clock }
	for i := range 8 {
		f.setHealthy(i)
	}
	xidAdded := false
	advance := func(d time.Duration) {
		clock = clock.Add(d)
		f.advanceCounters(d)
		if !xidAdded {
			f.addXID(5, 13)
			xidAdded = true
		}
	}
	return conformance.Subject{Source: s, Advance: advance,
		Lose: func(d device.Device) { f.setDevice(d.Index, devState, stateLost) }}
}

func useRealDriver() bool { return os.Getenv("PLIMSOLL_NVML") == "real" }

func openRealDriver(t *testing.T) *Source {
	s := New("", slog.New(slog.NewTextHandler(os.Stderr, nil)))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// With PLIMSOLL_NVML=real the test uses the driver of the machine instead of the fake.
func TestDriverConforms(t *testing.T) {
	if useRealDriver() {
		conformance.Test(t, func(t *testing.T) conformance.Subject {
			return conformance.Subject{Source: openRealDriver(t), Advance: time.Sleep}
		})
		return
	}
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(3, 0, fakeInstance{1, 1, 10, 7, 0}, fakeInstance{3, 3, 40, 2, 0})
	conformance.Test(t, f.subject)
}

func TestOldDriverConforms(t *testing.T) {
	f := inFake(t, "-DOLD_DRIVER")
	if f == nil {
		return
	}
	conformance.Test(t, f.subject)
}
