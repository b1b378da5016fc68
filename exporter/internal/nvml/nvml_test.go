package nvml

import (
	"context"
	"errors"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestReadIsolatesHungLostAndBrokenDevices(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := listDevices(t, s)
	f.setDevice(1, devState, stateHung)
	f.setDevice(3, devState, stateLost)
	f.setDevice(5, devState, stateReset)
	stalled := make(chan error, 1)
	go func() { _, err := s.Read(context.Background(), devices[1]); stalled <- err }()
	if got := listDevices(t, s); len(got) != 8 {
		t.Errorf("%d devices are listed while some fail, want 8", len(got))
	}
	for i, d := range devices {
		if i == 1 {
			continue
		}
		_, err := s.Read(context.Background(), d)
		switch i {
		case 3:
			if !errors.Is(err, device.ErrLost) {
				t.Errorf("lost device: got error %v, want ErrLost", err)
			}
		case 5:
			if err == nil || !strings.Contains(err.Error(), "requires reset") {
				t.Errorf("device in need of a reset: got error %v", err)
			}
		default:
			if err != nil {
				t.Errorf("device %d: %v", i, err)
			}
		}
	}
	select {
	case err := <-stalled:
		t.Fatalf("reading the hung device returned: %v", err)
	default:
	}
	f.unstall()
	if err := <-stalled; err != nil {
		t.Errorf("reading the device after its recovery: %v", err)
	}
}

func TestDevicesReloadsUnloadedDriver(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := listDevices(t, s)
	f.set(wordUnloaded, 1)
	f.set(wordInitResult, 9)
	for _, d := range devices[:2] {
		if _, err := s.Read(context.Background(), d); err == nil || errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "the driver was unloaded") {
			t.Errorf("reading without the driver: got error %v", err)
		}
	}
	if _, err := s.Devices(context.Background()); err == nil || !strings.Contains(err.Error(), "Driver Not Loaded") {
		t.Fatalf("listing without the driver: got error %v", err)
	}
	f.set(wordInitResult, 0)
	f.set(wordCount, 7)
	reloaded := listDevices(t, s)
	if len(reloaded) != 7 {
		t.Fatalf("%d devices after the reload, want 7", len(reloaded))
	}
	if _, err := s.Read(context.Background(), reloaded[6]); err != nil {
		t.Fatal(err)
	}
	if inits := f.get(wordInits); inits != 3 {
		t.Errorf("the library was initialized %d times, want 3: at the start, without the driver, and after the reload", inits)
	}
}

// A call stalls, the driver is loaded again, and then the call returns an error. The error
// belongs to the old session, so the new session must stay open.
func TestReadIgnoresErrorOfPreviousSession(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := listDevices(t, s)
	f.setDevice(1, devState, stateHung)
	late := make(chan error, 1)
	go func() { _, err := s.Read(context.Background(), devices[1]); late <- err }()
	f.waitForStall()
	f.setDevice(1, devState, stateOK)
	f.set(wordUnloaded, 1)
	if _, err := s.Read(context.Background(), devices[0]); err == nil {
		t.Fatal("reading succeeds without the driver")
	}
	listDevices(t, s)
	shutdowns := f.get(wordShutdowns)
	f.set(wordUnloaded, 1) // the stalled call returns this error
	f.unstall()
	if err := <-late; err == nil || !strings.Contains(err.Error(), "the driver was unloaded") {
		t.Errorf("stalled reading: got error %v", err)
	}
	if n := f.get(wordShutdowns); n != shutdowns {
		t.Errorf("the stalled reading ended the new session: %d shutdowns, want %d", n, shutdowns)
	}
}
