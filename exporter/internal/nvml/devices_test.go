package nvml

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func sortedUUIDs(devices []device.Device) (uuids []string) {
	for _, d := range devices {
		uuids = append(uuids, d.UUID)
	}
	slices.Sort(uuids)
	return uuids
}

// expectDevices compares the listed devices with UUIDs in any order.
func expectDevices(t *testing.T, devices []device.Device, want []string) {
	t.Helper()
	slices.Sort(want)
	if got := sortedUUIDs(devices); !slices.Equal(got, want) {
		t.Fatalf("the devices are %q, want %q", got, want)
	}
}

// A restart of the exporter does not hide a lost device: it is counted as unidentified.
func TestDeviceLostBeforeStart(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(3, devState, stateLost)
	e := f.exporter(t, time.Minute)
	for _, tc := range []struct {
		name         string
		unidentified int
	}{{"lost", 1}, {"recovered", 0}} {
		t.Run(tc.name, func(t *testing.T) {
			e.tick(t)
			text := e.scrape()
			if n := strings.Count(text, "\nDCGM_FI_DEV_GPU_TEMP{"); n != 8-tc.unidentified {
				t.Errorf("%d temperatures, want %d", n, 8-tc.unidentified)
			}
			if line := fmt.Sprintf("\nplimsoll_exporter_undescribed_devices{node=\"n\"} %d\n", tc.unidentified); !strings.Contains(text, line) {
				t.Errorf("missing %s in\n%s", line, text)
			}
		})
		f.setDevice(3, devState, stateOK)
	}
}

func TestReplacedDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := listDevices(t, s)
	f.setDevice(3, devState, stateLost)
	if _, err := s.Read(context.Background(), devices[3]); !errors.Is(err, device.ErrLost) {
		t.Fatal(err)
	}
	if n := len(listDevices(t, s)); n != 8 {
		t.Fatalf("%d devices are listed while a device is lost, want 8", n)
	}
	oldUUID := f.uuid(3)
	f.setDevice(3, devReplaced, 1)
	f.setDevice(3, devSerial, 0xbeef)
	f.setDevice(3, devState, stateOK)
	f.setDevice(5, devState, stateHung)
	stalled := make(chan error, 1)
	go func() { _, err := s.Read(context.Background(), devices[5]); stalled <- err }()
	f.waitForStall()
	if _, err := s.Read(context.Background(), devices[3]); !errors.Is(err, device.ErrLost) {
		t.Fatalf("reading the old device: got error %v, want ErrLost", err)
	}
	now := listDevices(t, s)
	expectDevices(t, now, f.uuids(0, 1, 2, 3, 4, 5, 6, 7))
	expectValue(t, readDevice(t, s, now[3]), device.GPUTemp, 43)
	if _, err := s.Read(context.Background(), device.Device{UUID: oldUUID}); err == nil {
		t.Error("reading the old device succeeds")
	}
	f.unstall()
	if err := <-stalled; err != nil {
		t.Error(err)
	}
}

// After the removal of a device the indexes refer to other devices. The list is read again
// as soon as no call hangs.
func TestRemovedDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := listDevices(t, s)
	f.setDevice(5, devState, stateHung)
	stalled := make(chan error, 1)
	go func() { _, err := s.Read(context.Background(), devices[5]); stalled <- err }()
	f.waitForStall()
	f.setDevice(3, devAbsent, 1)
	before := f.get(wordCalls)
	if n := len(listDevices(t, s)); n != 8 || f.get(wordCalls)-before != 1 {
		t.Errorf("%d devices and %d calls while a call hangs, want 8 and 1", n, f.get(wordCalls)-before)
	}
	f.unstall()
	if err := <-stalled; err != nil {
		t.Fatal(err)
	}
	now := listDevices(t, s)
	expectDevices(t, now, f.uuids(0, 1, 2, 4, 5, 6, 7))
	expectValue(t, readDevice(t, s, now[3]), device.GPUTemp, 44)
	f.setDevice(3, devAbsent, 0)
	if n := len(listDevices(t, s)); n != 8 {
		t.Errorf("%d devices after the device returned, want 8", n)
	}
}

// A device is lost, and another one appears at the same time. The number of devices stays the
// same, but the indexes refer to other devices.
func TestRenumberedDevices(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := listDevices(t, s)
	f.setHealthy(8)
	f.set(wordCount, 9)
	f.setDevice(3, devAbsent, 1)
	f.setDevice(3, devState, stateLost)
	if _, err := s.Read(context.Background(), devices[3]); !errors.Is(err, device.ErrLost) {
		t.Fatal(err)
	}
	listDevices(t, s) // updates the indexes in the fake
	if _, err := s.Read(context.Background(), devices[3]); !errors.Is(err, device.ErrLost) {
		t.Fatal(err)
	}
	now := listDevices(t, s)
	expectDevices(t, now, f.uuids(0, 1, 2, 4, 5, 6, 7, 8))
	for i, d := range now {
		if d.Index != i {
			t.Errorf("device %s has index %d, want %d", d.UUID, d.Index, i)
		}
	}
	if n := s.Undescribed(); n != 0 {
		t.Errorf("%d devices are unidentified, want 0", n)
	}
}

// Two devices report the same UUID, as cloned virtual devices can. The second is not
// exported, and the library is not loaded again in every collection.
func TestDevicesWithSameUUID(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(5, devSameUUID, 1+2)
	s := f.open()
	for range 3 {
		expectDevices(t, listDevices(t, s), f.uuids(0, 1, 2, 3, 4, 6, 7))
		if n := s.Undescribed(); n != 1 {
			t.Errorf("%d devices are unidentified, want 1", n)
		}
	}
	if n := f.get(wordInits); n > 2 {
		t.Errorf("the library was loaded %d times", n)
	}
}

// A hung device does not delay the listing of the others. Its identification is awaited
// once, and the device is listed after its response.
func TestDeviceHungBeforeStart(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(2, devState, stateHung)
	s := f.open()
	s.identifyTimeout = 200 * time.Millisecond
	expectDevices(t, listDevices(t, s), f.uuids(0, 1, 3, 4, 5, 6, 7))
	if n := s.Undescribed(); n != 1 {
		t.Errorf("%d devices are unidentified, want 1", n)
	}
	s.identifyTimeout = time.Hour
	calls := f.deviceWord(2, devCalls)
	if n := len(listDevices(t, s)); n != 7 || f.deviceWord(2, devCalls) != calls {
		t.Errorf("%d devices, want 7; %d further calls of the hung device, want 0", n, f.deviceWord(2, devCalls)-calls)
	}
	f.unstall()
	for len(listDevices(t, s)) != 8 {
		runtime.Gosched()
	}
	expectDevices(t, listDevices(t, s), f.uuids(0, 1, 2, 3, 4, 5, 6, 7))
	if n := s.Undescribed(); n != 0 {
		t.Errorf("%d devices are unidentified, want 0", n)
	}
}

// If several devices hang and no device responds, the driver itself hangs.
func TestDriverHungBeforeStart(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	for i := range 8 {
		f.setDevice(i, devState, stateHung)
	}
	s := f.open()
	s.identifyTimeout = 100 * time.Millisecond
	if _, err := s.Devices(context.Background()); err == nil || !strings.Contains(err.Error(), "none of 8 devices") {
		t.Fatalf("got error %v", err)
	}
	f.unstall()
	for {
		if devices, err := s.Devices(context.Background()); err == nil && len(devices) == 8 {
			return
		}
		runtime.Gosched()
	}
}
