// Package conformance tests the contract that every device.Source must meet.
package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Subject is a source under test.
type Subject struct {
	device.Source
	// Advance moves the clock of the source forward.
	Advance func(time.Duration)
	// Lose makes a device fall off the bus. Nil if the test cannot do that.
	Lose func(device.Device)
}

// Test runs every check against a source. open must return a new source over the same
// devices at each call.
func Test(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	for name, check := range map[string]func(*testing.T, Subject){
		"identity": checkIdentity, "readings": checkReadings, "instances": checkInstances, "lost": checkLostDevice, "unknown": checkUnknownDevice,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			check(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("close", func(t *testing.T) { checkClose(t, open) })
}

func (s Subject) devices(t *testing.T) []device.Device {
	t.Helper()
	devices, err := s.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) == 0 {
		t.Fatal("the source lists no devices")
	}
	return devices
}

// readable returns the devices that can be read within five seconds.
func (s Subject) readable(t *testing.T) (devices []device.Device) {
	t.Helper()
	for _, d := range s.devices(t) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if _, err := s.Read(ctx, d); err == nil {
			devices = append(devices, d)
		}
		cancel()
	}
	return devices
}

func (s Subject) read(t *testing.T, d device.Device) device.Reading {
	t.Helper()
	r, err := s.Read(t.Context(), d)
	if err != nil {
		t.Fatalf("%s: %v", d.UUID, err)
	}
	return r
}

// checkIdentity checks that the identity of each device is complete, unique and stable,
// and that XIDs are reported once, for listed devices only.
func checkIdentity(t *testing.T, s Subject) {
	first := s.devices(t)
	s.Advance(time.Second)
	second := s.devices(t)
	if len(first) != len(second) {
		t.Fatalf("%d devices, then %d", len(first), len(second))
	}
	seen := map[any]string{}
	for i, d := range first {
		again := second[i]
		if d.UUID != again.UUID || d.Index != again.Index || d.Minor != again.Minor || d.PCIBusID != again.PCIBusID || d.Model != again.Model || d.MemoryMiB != again.MemoryMiB {
			t.Errorf("%+v becomes %+v", d, again)
		}
		if d.UUID == "" || d.Model == "" || d.MemoryMiB <= 0 || d.Instance != nil {
			t.Errorf("incomplete identity: %+v", d)
		}
		for _, id := range []any{d.UUID, d.Index, d.PCIBusID} {
			if other, taken := seen[id]; taken && id != "" {
				t.Errorf("%v identifies both %s and %s", id, other, d.UUID)
			}
			seen[id] = d.UUID
		}
	}
	listed := map[string]bool{}
	for _, d := range first {
		listed[d.UUID] = true
	}
	for _, xid := range s.XIDs() {
		if !listed[xid.UUID] {
			t.Errorf("XID %d of %s, which is not listed", xid.Code, xid.UUID)
		}
	}
	if again := s.XIDs(); len(again) > 0 {
		t.Errorf("XIDs reported twice: %v", again)
	}
}

// checkInstances checks that MIG instances are identified, readable, and no larger than
// their device.
func checkInstances(t *testing.T, s Subject) {
	seen := map[string]bool{}
	for _, d := range s.readable(t) {
		r := s.read(t, d)
		if !r.MIG && len(r.Instances) > 0 {
			t.Errorf("%s has instances and is not in MIG mode", d.UUID)
		}
		sum := int64(0)
		for _, i := range r.Instances {
			sum += i.MemoryMiB
			if seen[i.UUID] || i.UUID == d.UUID || i.Instance == nil || i.Instance.Parent != d.UUID || i.Instance.Profile == "" {
				t.Errorf("instance of %s: %+v", d.UUID, i)
			}
			seen[i.UUID] = true
			reading := s.read(t, i)
			checkCoherence(t, i, &reading)
		}
		if sum > d.MemoryMiB {
			t.Errorf("the instances of %s have %d MiB in total, the device has %d", d.UUID, sum, d.MemoryMiB)
		}
	}
}

// checkLostDevice checks that a lost device stays listed, reads as ErrLost, and does not
// affect the others.
func checkLostDevice(t *testing.T, s Subject) {
	readable := s.readable(t)
	if s.Lose == nil || len(readable) == 0 {
		return
	}
	all := len(s.devices(t))
	lost := readable[len(readable)/2]
	s.Lose(lost)
	if now := s.devices(t); len(now) != all {
		t.Errorf("%d of %d devices are listed after one is lost", len(now), all)
	}
	for _, d := range readable {
		_, err := s.Read(t.Context(), d)
		if errors.Is(err, device.ErrLost) != (d.UUID == lost.UUID) || (err == nil) != (d.UUID != lost.UUID) {
			t.Errorf("%s is lost: reading %s returns %v", lost.UUID, d.UUID, err)
		}
	}
}

// checkUnknownDevice checks that reading an unknown device fails.
func checkUnknownDevice(t *testing.T, s Subject) {
	d := s.devices(t)[0]
	d.UUID, d.PCIBusID, d.Minor, d.Index = "unknown", "ffffffff:FF:1F.7", "unknown", 1000
	if r, err := s.Read(t.Context(), d); err == nil {
		t.Errorf("reading an unknown device returns %+v", r)
	}
}

// checkClose checks that Close releases everything and can be called twice.
func checkClose(t *testing.T, open func(t *testing.T) Subject) {
	before := goleak.IgnoreCurrent()
	s := open(t)
	for _, d := range s.readable(t) {
		s.read(t, d)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	goleak.VerifyNone(t, before)
}
