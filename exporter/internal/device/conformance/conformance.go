// Package conformance is what every source of devices must keep to, whichever
// library or simulation is behind it.
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
	// Advance lets time pass for the source.
	Advance func(time.Duration)
	// Lose makes a device fall off the bus; nil where a test can't.
	Lose func(device.Device)
}

// Test a source; open gives a new one over the same devices.
func Test(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	for name, check := range map[string]func(*testing.T, Subject){
		"identity": identity, "readings": readings, "instances": instances, "lost": lost, "unknown": unknown,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			check(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("close", func(t *testing.T) { closes(t, open) })
}

func (s Subject) devices(t *testing.T) []device.Device {
	t.Helper()
	devices, err := s.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) == 0 {
		t.Fatal("there are no devices to try it on")
	}
	return devices
}

// healthy devices are those that answer.
func (s Subject) healthy(t *testing.T) (devices []device.Device) {
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

// identity of a device stays, and is its own.
func identity(t *testing.T, s Subject) {
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
			t.Errorf("it does not say what it is: %+v", d)
		}
		for _, own := range []any{d.UUID, d.Index, d.PCIBusID} {
			if other, taken := seen[own]; taken && own != "" {
				t.Errorf("%v is both %s and %s", own, other, d.UUID)
			}
			seen[own] = d.UUID
		}
	}
	known := map[string]bool{}
	for _, d := range first {
		known[d.UUID] = true
	}
	for _, xid := range s.XIDs() {
		if !known[xid.UUID] {
			t.Errorf("XID %d of %s, which is not listed", xid.Code, xid.UUID)
		}
	}
	if again := s.XIDs(); len(again) > 0 {
		t.Errorf("XIDs that were taken come again: %v", again)
	}
}

// instances are read as devices of their own.
func instances(t *testing.T, s Subject) {
	seen := map[string]bool{}
	for _, d := range s.healthy(t) {
		r := s.read(t, d)
		if !r.MIG && len(r.Instances) > 0 {
			t.Errorf("%s has instances and is not in MIG mode", d.UUID)
		}
		sum := int64(0)
		for _, i := range r.Instances {
			sum += i.MemoryMiB
			if seen[i.UUID] || i.UUID == d.UUID || i.Instance == nil || i.Instance.Parent != d.UUID || i.Instance.Profile == "" {
				t.Errorf("an instance of %s is %+v", d.UUID, i)
			}
			seen[i.UUID] = true
			part := s.read(t, i)
			coherent(t, i, &part)
		}
		if sum > d.MemoryMiB {
			t.Errorf("the instances of %s have %d MiB together, it has %d", d.UUID, sum, d.MemoryMiB)
		}
	}
}

// lost devices are listed, tell ErrLost, and cost the others nothing.
func lost(t *testing.T, s Subject) {
	healthy := s.healthy(t)
	if s.Lose == nil || len(healthy) == 0 {
		return
	}
	all := len(s.devices(t))
	gone := healthy[len(healthy)/2]
	s.Lose(gone)
	if now := s.devices(t); len(now) != all {
		t.Errorf("%d devices are listed of %d when one is lost", len(now), all)
	}
	for _, d := range healthy {
		_, err := s.Read(t.Context(), d)
		if errors.Is(err, device.ErrLost) != (d.UUID == gone.UUID) || (err == nil) != (d.UUID != gone.UUID) {
			t.Errorf("%s is lost: %s answers %v", gone.UUID, d.UUID, err)
		}
	}
}

// unknown devices are an error.
func unknown(t *testing.T, s Subject) {
	d := s.devices(t)[0]
	d.UUID, d.PCIBusID, d.Minor, d.Index = "nobody", "ffffffff:FF:1F.7", "nobody", 1000
	if r, err := s.Read(t.Context(), d); err == nil {
		t.Errorf("a device that is not there tells %+v", r)
	}
}

// closes gives everything back, once and again.
func closes(t *testing.T, open func(t *testing.T) Subject) {
	before := goleak.IgnoreCurrent()
	s := open(t)
	for _, d := range s.healthy(t) {
		s.read(t, d)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	goleak.VerifyNone(t, before)
}
