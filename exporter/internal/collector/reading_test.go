package collector

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

func TestHungDeviceDoesNotAffectOthers(t *testing.T) {
	f := setup(t)
	f.cfg.Deadline = hangDeadline
	stall := make(chan struct{})
	f.source.hung[uuid(3)] = stall
	f.collect(t)
	families, _ := f.collect(t)
	if n := len(families["DCGM_FI_DEV_GPU_UTIL"].Metric); n != 7 {
		t.Fatalf("%d devices have fresh values, want the 7 others", n)
	}
	if got := value(t, families, "plimsoll_device_hung", "uuid", uuid(3)); got != 1 {
		t.Fatalf("plimsoll_device_hung = %g", got)
	}
	if got, want := nodeStates(t, families), [5]float64{8, 0, 7, 1, 0}; got != want {
		t.Fatalf("allocatable, allocated, free, unhealthy = %v, want %v", got, want)
	}
	f.source.mu.Lock()
	reads := f.source.reads[uuid(3)]
	delete(f.source.hung, uuid(3))
	f.source.mu.Unlock()
	if reads != 1 {
		t.Fatalf("the stalled device was called %d times, want once until it returns", reads)
	}
	close(stall)
	for {
		families, _ = f.collect(t)
		if value(t, families, "plimsoll_device_hung", "uuid", uuid(3)) == 0 {
			break
		}
	}
	if n := len(families["DCGM_FI_DEV_GPU_UTIL"].Metric); n != 8 {
		t.Fatalf("%d devices after the stall, want 8", n)
	}
}

// Instances of an unhealthy device are unhealthy.
func TestInstancesOfHungDeviceAreUnhealthyAndNotRead(t *testing.T) {
	f := setup(t)
	f.source.instances = []device.Instance{{Profile: "1g.10gb", GI: 1}}
	f.collect(t)
	stall := make(chan struct{})
	f.source.mu.Lock()
	f.source.hung[uuid(0)] = stall
	f.source.mu.Unlock()
	f.cfg.Deadline = hangDeadline
	families, text := f.collect(t)
	if value(t, families, "plimsoll_device_failed", "uuid", migUUID(0, 1, 0)) != 1 || families["DCGM_FI_DEV_FB_USED"] != nil {
		t.Errorf("the instance of a hung device:\n%s", text)
	}
	f.source.mu.Lock()
	reads := f.source.reads[migUUID(0, 1, 0)]
	delete(f.source.hung, uuid(0))
	f.source.mu.Unlock()
	if reads != 1 {
		t.Errorf("the instance was read %d times, want once", reads)
	}
	close(stall)
	for value(t, families, "plimsoll_device_hung", "uuid", uuid(0)) != 0 {
		families, _ = f.collect(t)
	}
	if value(t, families, "plimsoll_device_failed", "uuid", migUUID(0, 1, 0)) != 0 {
		t.Error("the instance is failed after its device recovered")
	}
}

// slowSource is a source of one device whose calls take the given durations.
type slowSource struct {
	singleSource
	calls     []time.Duration
	reads     int
	instances int // read without delay
}

func (s *slowSource) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	r := device.Reading{Time: time.Now()}
	if d.Instance != nil {
		return r, nil
	}
	for i := range s.instances {
		r.Instances = append(r.Instances, device.Device{UUID: fmt.Sprint("MIG-", i), Instance: &device.Instance{Parent: d.UUID, GI: i}})
	}
	s.reads++
	r.Set(device.GPUUtil, float64(s.reads))
	for i, took := range s.calls {
		time.Sleep(took)
		device.ReportProgress(ctx)
		r.Calls = append(r.Calls, device.Call{Name: []string{"a", "b"}[i%2], Took: took})
	}
	return r, nil
}

func runWithFakeTime(t *testing.T, s *slowSource, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pods, err := podmap.New("", nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{}
		f.Collector = New(Config{Node: "node-1", Interval: time.Second, Deadline: time.Second, Log: slog.New(slog.DiscardHandler)}, pods, NamedSource{Source: s})
		test(t, f)
		time.Sleep(time.Minute) // blocked calls return
	})
}

// device collects once and returns a tracked device.
func (f *fixture) device(t *testing.T) *trackedDevice {
	t.Helper()
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, d := range f.tracked {
		return d
	}
	return nil
}

func TestReadAllowsManySlowCalls(t *testing.T) {
	runWithFakeTime(t, &slowSource{calls: []time.Duration{900 * time.Millisecond, 900 * time.Millisecond, 700 * time.Millisecond}}, func(t *testing.T, f *fixture) {
		if d := f.device(t); d.hung || !d.fresh || d.readDuration != 2500*time.Millisecond {
			t.Errorf("hung %t, fresh %t, took %s", d.hung, d.fresh, d.readDuration)
		}
	})
}

func TestReadMarksDeviceHungAfterDeadline(t *testing.T) {
	s := &slowSource{calls: []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond}}
	runWithFakeTime(t, s, func(t *testing.T, f *fixture) {
		start := time.Now()
		if d := f.device(t); !d.hung || d.fresh {
			t.Errorf("hung %t, fresh %t", d.hung, d.fresh)
		}
		if waited := time.Since(start); waited != 1100*time.Millisecond {
			t.Errorf("other devices waited %s", waited)
		}
		f.device(t)
		if s.reads != 1 {
			t.Errorf("the hung device was read %d times", s.reads)
		}
		time.Sleep(time.Second)
		s.calls = nil
		if d := f.device(t); d.hung || !d.fresh {
			t.Errorf("after the call returned: hung %t, fresh %t", d.hung, d.fresh)
		} else if v, _ := d.reading.Get(device.GPUUtil); v != 2 {
			t.Errorf("the late value %g was used", v)
		}
	})
}

// A slow device delays the others by at most maxDeadlinesPerReading deadlines.
func TestReadLimitsTotalDuration(t *testing.T) {
	s := &slowSource{}
	for range 20 {
		s.calls = append(s.calls, 900*time.Millisecond)
	}
	runWithFakeTime(t, s, func(t *testing.T, f *fixture) {
		start := time.Now()
		if d := f.device(t); !d.hung || time.Since(start) != maxDeadlinesPerReading*time.Second {
			t.Errorf("hung %t after %s", d.hung, time.Since(start))
		}
	})
}

// A device in MIG mode needs many calls. After its first reading the limit grows.
func TestReadAllowsMoreTimeForInstances(t *testing.T) {
	s := &slowSource{instances: 7}
	for range 80 {
		s.calls = append(s.calls, 100*time.Millisecond)
	}
	runWithFakeTime(t, s, func(t *testing.T, f *fixture) {
		f.device(t)
		time.Sleep(10 * time.Second)
		f.device(t)
		for _, d := range f.tracked {
			if d.hung || !d.fresh {
				t.Errorf("%s: hung %t, fresh %t", d.device.UUID, d.hung, d.fresh)
			}
		}
		if len(f.tracked) != 8 {
			t.Errorf("%d devices and instances, want 8", len(f.tracked))
		}
	})
}

func TestCallSecondsIsSlowestCallByName(t *testing.T) {
	runWithFakeTime(t, &slowSource{calls: []time.Duration{50 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond}}, func(t *testing.T, f *fixture) {
		f.device(t)
		families, text := f.scrape(t)
		for call, want := range map[string]float64{"a": 0.05, "b": 0.02} {
			if got := value(t, families, "plimsoll_exporter_device_call_seconds", "node", "node-1", "call", call); got != want {
				t.Errorf("%s took %g s, want %g:\n%s", call, got, want, text)
			}
		}
	})
}
