package nvml

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/device/conformance"
)

// subject is the fake as its test set it up.
func (f *fake) subject(_ *testing.T) conformance.Subject {
	s := f.open()
	clock := time.Now()
	s.now = func() time.Time { return clock }
	for i := range 8 {
		f.healthy(i)
	}
	told := false
	advance := func(d time.Duration) {
		clock = clock.Add(d)
		f.work(d)
		if !told {
			f.xid(5, 13)
			told = true
		}
	}
	return conformance.Subject{Source: s, Advance: advance,
		Lose: func(d device.Device) { f.device(d.Index, devState, stateLost) }}
}

func isReal() bool { return os.Getenv("PLIMSOLL_NVML") == "real" }

func openReal(t *testing.T) *Source {
	s := New("", slog.New(slog.NewTextHandler(os.Stderr, nil)))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// With PLIMSOLL_NVML=real the suite runs over the machine's own library.
func TestTheLibraryConforms(t *testing.T) {
	if isReal() {
		conformance.Test(t, func(t *testing.T) conformance.Subject {
			return conformance.Subject{Source: openReal(t), Advance: time.Sleep}
		})
		return
	}
	f := inFake(t)
	if f == nil {
		return
	}
	f.cut(3, 0, instance{1, 1, 10, 7, 0}, instance{3, 3, 40, 2, 0})
	conformance.Test(t, f.subject)
}

func TestAnOldDriverConforms(t *testing.T) {
	f := inFake(t, "-DOLD_DRIVER")
	if f == nil {
		return
	}
	conformance.Test(t, f.subject)
}
