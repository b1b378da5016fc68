package nvml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// instanceNames returns the profile, IDs and placement of the instances in a reading.
func instanceNames(r device.Reading) []string {
	var names []string
	for _, i := range r.Instances {
		names = append(names, fmt.Sprintf("%s %d/%d %s", i.Instance.Profile, i.Instance.GI, i.Instance.CI, i.Instance.Placement))
	}
	return names
}

func TestReadMIGInstances(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(1, 2, fakeInstance{1, 1, 10, 7, 0}, fakeInstance{3, 3, 40, 2, 0})
	s := f.open()
	devices := listDevices(t, s)
	if r := readDevice(t, s, devices[0]); r.MIG || r.Instances != nil {
		t.Errorf("a device without MIG mode has MIG %t and instances %+v", r.MIG, r.Instances)
	}
	r := readDevice(t, s, devices[1])
	if want := []string{"1g.10gb 7/0 19-0", "3g.40gb 2/0 19-1"}; !r.MIG || !slices.Equal(instanceNames(r), want) {
		t.Fatalf("instances are %q, want %q", instanceNames(r), want)
	}
	for _, field := range []device.Field{device.GPUUtil, device.MemCopyUtil, device.EncUtil} {
		expectAbsent(t, r, field)
	}
	expectValue(t, r, device.PowerUsage, 300.001)
	i := r.Instances[1]
	if i.UUID != "MIG-000000a1-0000-5000-8000-000100020000" || i.Instance.Parent != devices[1].UUID || i.Minor != "nvidia1" || i.Index != 1 || i.MemoryMiB != 40*1024-400 || i.Links != nil {
		t.Errorf("instance is %+v", i)
	}
	instance := readDevice(t, s, i)
	expectValue(t, instance, device.FBUsed, 200)
	expectValue(t, instance, device.FBTotal, 40*1024-400)
	for field := range device.NumFields {
		if _, ok := instance.Get(field); ok && field != device.FBUsed && field != device.FBTotal && field != device.FBFree && field != device.FBReserved && field != device.FBUsedRatio {
			t.Errorf("an instance has field %d", field)
		}
	}
}

// The device is partitioned again while the library is in use. A new instance has the UUID
// of a removed instance.
func TestReadAfterMIGReconfiguration(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(0, 0, fakeInstance{3, 3, 40, 1, 0}, fakeInstance{3, 3, 40, 2, 0})
	s := f.open()
	d := listDevices(t, s)[0]
	removed := readDevice(t, s, d).Instances
	f.partition(0, 0, fakeInstance{1, 1, 10, 1, 0}, fakeInstance{2, 1, 20, 5, 0}, fakeInstance{2, 1, 20, 5, 1})
	r := readDevice(t, s, d)
	if got, want := instanceNames(r), []string{"1g.10gb 1/0 19-0", "2g.20gb 5/0 19-1", "2g.20gb 5/1 19-1"}; !slices.Equal(got, want) {
		t.Fatalf("instances are %q, want %q", got, want)
	}
	if r.Instances[0].UUID != removed[0].UUID {
		t.Fatal("the fake does not reuse the UUID")
	}
	expectValue(t, readDevice(t, s, r.Instances[0]), device.FBTotal, 10*1024-400)
	if _, err := s.Read(context.Background(), removed[1]); err == nil {
		t.Error("reading a removed instance succeeds")
	}
	f.partition(0, 0)
	if r = readDevice(t, s, d); !r.MIG || len(r.Instances) != 0 {
		t.Errorf("MIG mode without instances: MIG %t, instances %q", r.MIG, instanceNames(r))
	}
	f.set(wordDevices+maxDevices*deviceWords, 0)
	if r = readDevice(t, s, d); r.MIG || len(r.Instances) != 0 {
		t.Errorf("without MIG mode: MIG %t, instances %q", r.MIG, instanceNames(r))
	}
	expectValue(t, r, device.GPUUtil, 10)
}

func TestProfileOfUnnamedInstance(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(0, 0, fakeInstance{1, 1, 10, 1, 0}, fakeInstance{2, 1, 20, 2, 0}, fakeInstance{3, 3, 40, 3, 0}, fakeInstance{7, 7, 80, 4, 0})
	for slot := range 4 {
		f.set(wordDevices+maxDevices*deviceWords+1+slot*migInstanceWords+migNamedGB, 0)
	}
	f.setUnsupported(0, 1<<48) // the placement requires more privileges
	s := f.open()
	if got, want := instanceNames(readDevice(t, s, listDevices(t, s)[0])), []string{"1g.10gb 1/0 ", "1c.2g.20gb 2/0 ", "3g.40gb 3/0 ", "7g.80gb 4/0 "}; !slices.Equal(got, want) {
		t.Errorf("instances are %q, want %q", got, want)
	}
}

func TestReadMIGInstanceOfLostDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(0, 0, fakeInstance{1, 1, 10, 1, 0})
	s := f.open()
	d := listDevices(t, s)[0]
	i := readDevice(t, s, d).Instances[0]
	f.setDevice(0, devState, stateLost)
	for _, d := range []device.Device{d, i} {
		if _, err := s.Read(context.Background(), d); !errors.Is(err, device.ErrLost) {
			t.Errorf("%s: got error %v, want ErrLost", d.UUID, err)
		}
	}
}

// An instance cannot be described. The error is logged once.
func TestUnreadableMIGInstanceIsLoggedOnce(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(0, 0, fakeInstance{1, 1, 10, 1, 0})
	var log strings.Builder
	s := f.open()
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	d := listDevices(t, s)[0]
	f.setDevice(0, devFailing, 1<<42) // nvmlDeviceGetAttributes
	f.setDevice(0, devFailure, 999)
	for range 2 {
		if r := readDevice(t, s, d); len(r.Instances) != 0 {
			t.Errorf("instances are %q, want none", instanceNames(r))
		}
	}
	if n := strings.Count(log.String(), "reading a MIG instance failed"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log.String())
	}
}

// The driver denies the placement of an instance to users without privileges. The instance is listed
// without it, and the denial is in the reading of its device.
func TestDeniedPlacementIsInReading(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(0, 0, fakeInstance{1, 1, 10, 1, 0}, fakeInstance{2, 1, 20, 2, 0})
	s := f.open()
	d := listDevices(t, s)[0]
	placementErrors := func() (errs []error) {
		for _, call := range readDevice(t, s, d).Calls {
			if call.Name == "nvmlDeviceGetGpuInstanceById" {
				errs = append(errs, call.Err)
			}
		}
		return errs
	}
	if got := placementErrors(); len(got) != 1 || got[0] != nil {
		t.Errorf("the reading has the errors %v, want one call without an error", got)
	}
	f.setDevice(0, devFailing, 1<<48)
	f.setDevice(0, devFailure, 4)
	if got := placementErrors(); len(got) != 1 || !errors.Is(got[0], device.ErrDenied) {
		t.Errorf("the reading has the errors %v, want one that is ErrDenied", got)
	}
	if got, want := instanceNames(readDevice(t, s, d)), []string{"1g.10gb 1/0 ", "2g.20gb 2/0 "}; !slices.Equal(got, want) {
		t.Errorf("instances are %q, want %q", got, want)
	}
}
