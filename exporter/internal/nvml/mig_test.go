package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Words of a device's MIG in the fake; testdata/fake/mig.c has the same ones.
const (
	migWords, migPartWords                    = 80, 11
	migSlices, migComputeSlices, migMemory    = 0, 1, 2
	migGI, migCI, migUsed, migReserved        = 3, 4, 5, 6
	migTotal, migNamedGB, migProfileID, migAt = 7, 8, 9, 10
	fakeSize                                  = 8 * (wordDevices + maxDevices*(deviceWords+migWords+processWords))
)

// instance of the fake.
type instance struct{ slices, compute, gb, gi, ci uint64 }

// cut device i in instances, with the first at place first.
func (f *fake) cut(i, first int, instances ...instance) {
	base := wordDevices + maxDevices*deviceWords + i*migWords
	for word := range migWords {
		f.set(base+word, 0)
	}
	f.set(base, 1)
	for n, in := range instances {
		at := base + 1 + (first+n)*migPartWords
		for word, v := range map[int]uint64{migSlices: in.slices, migComputeSlices: in.compute, migMemory: in.gb*1024 - 400, migGI: in.gi, migCI: in.ci,
			migUsed: 100 * in.gi << 20, migReserved: 10 << 20, migTotal: (in.gb*1024 - 400) << 20, migNamedGB: in.gb, migProfileID: 19, migAt: uint64(n)} {
			f.set(at+word, v)
		}
	}
}

func read(t *testing.T, s *Source, d device.Device) device.Reading {
	t.Helper()
	r, err := s.Read(context.Background(), d)
	if err != nil {
		t.Fatalf("%s: %v", d.UUID, err)
	}
	return r
}

func profiles(r device.Reading) []string {
	var out []string
	for _, i := range r.Instances {
		out = append(out, fmt.Sprintf("%s %d/%d %s", i.Instance.Profile, i.Instance.GI, i.Instance.CI, i.Instance.Placement))
	}
	return out
}

func TestMIGInstances(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.cut(1, 2, instance{1, 1, 10, 7, 0}, instance{3, 3, 40, 2, 0})
	s := f.open()
	devices := list(t, s)
	if r := read(t, s, devices[0]); r.MIG || r.Instances != nil {
		t.Errorf("a device that is not in MIG mode: %+v", r.Instances)
	}
	r := read(t, s, devices[1])
	if want := []string{"1g.10gb 7/0 19-0-1", "3g.40gb 2/0 19-1-3"}; !r.MIG || !slices.Equal(profiles(r), want) {
		t.Fatalf("instances are %q, want %q", profiles(r), want)
	}
	for _, field := range []device.Field{device.GPUUtil, device.MemCopyUtil, device.EncUtil} {
		absent(t, r, field)
	}
	want(t, r, device.PowerUsage, 300.001)
	i := r.Instances[1]
	if i.UUID != "MIG-000000a1-0000-5000-8000-000100020000" || i.Instance.Parent != devices[1].UUID || i.Minor != "nvidia1" || i.Index != 1 || i.MemoryMiB != 40*1024-400 || i.Links != nil {
		t.Errorf("%+v", i)
	}
	part := read(t, s, i)
	want(t, part, device.FBUsed, 200)
	want(t, part, device.FBTotal, 40*1024-400)
	for field := range device.NumFields {
		if _, ok := part.Get(field); ok && field != device.FBUsed && field != device.FBTotal && field != device.FBFree && field != device.FBReserved && field != device.FBUsedRatio {
			t.Errorf("an instance tells field %d", field)
		}
	}
}

// The device is cut anew while the library is in use, and one of the new
// instances follows an old one under its UUID.
func TestMIGIsReconfigured(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.cut(0, 0, instance{3, 3, 40, 1, 0}, instance{3, 3, 40, 2, 0})
	s := f.open()
	d := list(t, s)[0]
	old := read(t, s, d).Instances
	f.cut(0, 0, instance{1, 1, 10, 1, 0}, instance{2, 1, 20, 5, 0}, instance{2, 1, 20, 5, 1})
	r := read(t, s, d)
	if got, want := profiles(r), []string{"1g.10gb 1/0 19-0-1", "2g.20gb 5/0 19-1-2", "2g.20gb 5/1 19-1-2"}; !slices.Equal(got, want) {
		t.Fatalf("instances are %q, want %q", got, want)
	}
	if r.Instances[0].UUID != old[0].UUID {
		t.Fatal("the fake does not give a UUID again")
	}
	want(t, read(t, s, r.Instances[0]), device.FBTotal, 10*1024-400)
	if _, err := s.Read(context.Background(), old[1]); err == nil {
		t.Error("an instance that is gone answers")
	}
	f.cut(0, 0)
	if r = read(t, s, d); !r.MIG || len(r.Instances) != 0 {
		t.Errorf("MIG mode without an instance: %t, %q", r.MIG, profiles(r))
	}
	f.set(wordDevices+maxDevices*deviceWords, 0)
	if r = read(t, s, d); r.MIG || len(r.Instances) != 0 {
		t.Errorf("out of MIG mode: %t, %q", r.MIG, profiles(r))
	}
	want(t, r, device.GPUUtil, 10)
}

func TestProfileWhereTheDriverDoesNotNameIt(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.cut(0, 0, instance{1, 1, 10, 1, 0}, instance{2, 1, 20, 2, 0}, instance{3, 3, 40, 3, 0}, instance{7, 7, 80, 4, 0})
	for place := range 4 {
		f.set(wordDevices+maxDevices*deviceWords+1+place*migPartWords+migNamedGB, 0)
	}
	f.unsupported(0, 1<<48) // where they lie is for those with more rights
	s := f.open()
	if got, want := profiles(read(t, s, list(t, s)[0])), []string{"1g.10gb 1/0 ", "1c.2g.20gb 2/0 ", "3g.40gb 3/0 ", "7g.80gb 4/0 "}; !slices.Equal(got, want) {
		t.Errorf("instances are %q, want %q", got, want)
	}
}

func TestMIGOfADeviceThatIsLost(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.cut(0, 0, instance{1, 1, 10, 1, 0})
	s := f.open()
	d := list(t, s)[0]
	i := read(t, s, d).Instances[0]
	f.device(0, devState, stateLost)
	for _, d := range []device.Device{d, i} {
		if _, err := s.Read(context.Background(), d); !errors.Is(err, device.ErrLost) {
			t.Errorf("%s: %v", d.UUID, err)
		}
	}
}

// Utilization of a device in MIG mode is told by GPU instance, for all its parts.
func TestMIGInstancesTellTheirMonitors(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.cut(0, 0, instance{1, 1, 10, 7, 0}, instance{2, 1, 20, 5, 0}, instance{2, 1, 20, 5, 1})
	s := f.open()
	d := list(t, s)[0]
	now := time.Unix(1_800_000_000, 0)
	s.now = func() time.Time { return now }
	tick := func() (readings []device.Reading) {
		now = now.Add(time.Second)
		for _, i := range read(t, s, d).Instances {
			readings = append(readings, read(t, s, i))
		}
		return readings
	}
	for _, r := range tick() {
		absent(t, r, device.EngineActive) // of the time between two readings
	}
	for i, r := range tick() {
		gi := []float64{7, 5, 5}[i] / 100
		for field, v := range map[device.Field]float64{device.EngineActive: 0.41, device.SMActive: 0.42, device.SMOccupancy: 0.43, device.TensorActive: 0.45, device.DRAMActive: 0.5} {
			want(t, r, field, v+gi)
		}
		absent(t, r, device.PCIeTx)
	}
	// Another profile follows under the id of one, and its monitors begin anew.
	f.cut(0, 0, instance{3, 3, 40, 5, 0})
	absent(t, tick()[0], device.EngineActive)
	want(t, tick()[0], device.EngineActive, 0.46)
	if n := f.get(wordSamples); n != 4 {
		t.Errorf("%d samples are kept, want 2 of the device and 2 of its instance", n)
	}
	if err := s.Close(); err != nil || f.get(wordSamples) != 0 {
		t.Errorf("%d samples are left: %v", f.get(wordSamples), err)
	}
}
