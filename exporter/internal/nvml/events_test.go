package nvml

import (
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
