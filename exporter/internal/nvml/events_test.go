package nvml

import (
	"context"
	"errors"
	"slices"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestXIDsReturnsEachEventOnce(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	listDevices(t, s)
	f.addXID(4, 79)
	f.addXID(4, 31)
	got := s.XIDs()
	if len(got) != 2 || got[0] != (device.XID{UUID: f.uuid(4), Code: 79}) || got[1].Code != 31 {
		t.Fatalf("XIDs are %v", got)
	}
	if again := s.XIDs(); len(again) != 0 {
		t.Fatalf("second call returned XIDs again: %v", again)
	}
}

// The XID of a lost device explains the loss, but a lost device no longer returns its UUID.
func TestXIDsOfLostDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	listDevices(t, s)
	f.setDevice(4, devState, stateLost)
	f.addXID(4, 79)
	if got := s.XIDs(); len(got) != 1 || got[0] != (device.XID{UUID: f.uuid(4), Code: 79}) {
		t.Fatalf("XIDs are %v", got)
	}
}

// The driver fails each wait for events of a lost device. The other devices report their events.
func TestXIDsBesideLostDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	listDevices(t, s)
	f.setDevice(4, devState, stateLost)
	f.addXID(4, 79)
	if got := s.XIDs(); !slices.Equal(got, []device.XID{{UUID: f.uuid(4), Code: 79}}) {
		t.Fatalf("XIDs are %v", got)
	}
	for _, code := range []uint64{48, 31} {
		f.addXID(5, code)
		if got := s.XIDs(); !slices.Equal(got, []device.XID{{UUID: f.uuid(5), Code: code}}) {
			t.Errorf("XIDs are %v, want %d of device 5", got, code)
		}
	}
}

// The events of one device, which a tenant can cause, do not delay those of the others.
func TestXIDsBesideFlood(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	listDevices(t, s)
	f.setDevice(4, devFlood, 3000)
	f.addXID(5, 48)
	got := s.XIDs()
	if !slices.Contains(got, device.XID{UUID: f.uuid(5), Code: 48}) {
		t.Errorf("the XID of device 5 is missing from %d", len(got))
	}
	if len(got) > maxXIDs {
		t.Errorf("%d XIDs in one call, want at most %d", len(got), maxXIDs)
	}
	flood := len(got) - 1
	for flood < 3000 && len(got) > 0 {
		got = s.XIDs()
		flood += len(got)
	}
	if flood != 3000 {
		t.Errorf("%d XIDs of device 4 were read, want 3000", flood)
	}
}

// A wait that fails counts as a failed call of the device's reading. A device without events is no
// failure.
func TestFailedWaitIsInReading(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := listDevices(t, s)
	errorOf := func(d device.Device) (err error, found bool) {
		for _, call := range readDevice(t, s, d).Calls {
			if call.Name == "nvmlEventSetWait" {
				return call.Err, true
			}
		}
		return nil, false
	}
	f.setDevice(4, devFailing, 1<<49) // the wait for events
	for code, want := range map[uint64]error{4: device.ErrDenied, 999: nil} {
		f.setDevice(4, devFailure, code)
		s.XIDs()
		err, found := errorOf(devices[4])
		if !found || err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("code %d: the error is %v", code, err)
		}
	}
	if err, found := errorOf(devices[5]); !found || err != nil {
		t.Errorf("the wait of device 5 is in the reading: %t, error %v", found, err)
	}
	f.setDevice(4, devFailing, 0)
	s.XIDs()
	if err, found := errorOf(devices[4]); !found || err != nil {
		t.Errorf("after a successful wait: in the reading: %t, error %v", found, err)
	}
}

// Each device has an event set, which is freed with its handle.
func TestEventSetsAreFreed(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setUnsupported(7, 1<<12)
	s := f.open()
	devices := listDevices(t, s)
	if n := f.get(wordEventSets); n != 7 {
		t.Errorf("%d event sets, want one for each device with events", n)
	}
	if devices[7].ReportsXIDs || !devices[6].ReportsXIDs {
		t.Error("the wrong devices report XIDs")
	}
	f.setDevice(2, devReplaced, 1)
	f.setDevice(2, devSerial, 0xff)
	_, err := s.Read(context.Background(), devices[2])
	if !errors.Is(err, device.ErrLost) {
		t.Fatal(err)
	}
	listDevices(t, s)
	if n := f.get(wordEventSets); n != 7 {
		t.Errorf("%d event sets after a device was replaced, want 7", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := f.get(wordEventSets); n != 0 {
		t.Errorf("%d event sets are left", n)
	}
}
