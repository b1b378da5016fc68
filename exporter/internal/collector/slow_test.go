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

// sluggish is a source of one device whose calls take as long as a test says.
type sluggish struct {
	single
	calls []time.Duration
	reads int
	parts int // that answer at once
}

func (s *sluggish) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	r := device.Reading{Time: time.Now()}
	if d.Instance != nil {
		return r, nil
	}
	for i := range s.parts {
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

func inBubble(t *testing.T, s *sluggish, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pods, err := podmap.New("", nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{}
		f.Collector = New(Config{Node: "node-1", Interval: time.Second, Deadline: time.Second, Log: slog.New(slog.DiscardHandler)}, s, pods)
		test(t, f)
		time.Sleep(time.Minute) // what stalls ends
	})
}

func (f *fixture) device(t *testing.T) *known {
	t.Helper()
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, k := range f.known {
		return k
	}
	return nil
}

func TestAReadingOfManySlowCallsDoesNotHang(t *testing.T) {
	inBubble(t, &sluggish{calls: []time.Duration{900 * time.Millisecond, 900 * time.Millisecond, 700 * time.Millisecond}}, func(t *testing.T, f *fixture) {
		if k := f.device(t); k.hung() || !k.fresh || k.took != 2500*time.Millisecond {
			t.Errorf("hung %t, fresh %t, took %s", k.hung(), k.fresh, k.took)
		}
	})
}

func TestACallPastItsDeadlineHangs(t *testing.T) {
	s := &sluggish{calls: []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond}}
	inBubble(t, s, func(t *testing.T, f *fixture) {
		start := time.Now()
		if k := f.device(t); !k.hung() || k.fresh {
			t.Errorf("hung %t, fresh %t", k.hung(), k.fresh)
		}
		if waited := time.Since(start); waited != 1100*time.Millisecond {
			t.Errorf("the others waited %s", waited)
		}
		f.device(t)
		if s.reads != 1 {
			t.Errorf("it was asked %d times while it hung", s.reads)
		}
		time.Sleep(time.Second)
		s.calls = nil
		if k := f.device(t); k.hung() || !k.fresh {
			t.Errorf("it answers again: hung %t, fresh %t", k.hung(), k.fresh)
		} else if v, _ := k.reading.Get(device.GPUUtil); v != 2 {
			t.Errorf("what it told late, %g, passes for fresh", v)
		}
	})
}

// However slow, one device costs the others no more than its patience.
func TestAReadingIsBoundedAltogether(t *testing.T) {
	s := &sluggish{}
	for range 20 {
		s.calls = append(s.calls, 900*time.Millisecond)
	}
	inBubble(t, s, func(t *testing.T, f *fixture) {
		start := time.Now()
		if k := f.device(t); !k.hung() || time.Since(start) != patience*time.Second {
			t.Errorf("hung %t after %s", k.hung(), time.Since(start))
		}
	})
}

// A device in MIG mode takes many calls, and gets more time once it is known to.
func TestASlowDeviceOfManyInstancesComesBack(t *testing.T) {
	s := &sluggish{parts: 7}
	for range 80 {
		s.calls = append(s.calls, 100*time.Millisecond)
	}
	inBubble(t, s, func(t *testing.T, f *fixture) {
		f.device(t)
		time.Sleep(10 * time.Second)
		f.device(t)
		for _, k := range f.known {
			if k.hung() || !k.fresh {
				t.Errorf("%s: hung %t, fresh %t", k.device.UUID, k.hung(), k.fresh)
			}
		}
		if len(f.known) != 8 {
			t.Errorf("%d devices and instances, want 8", len(f.known))
		}
	})
}

func TestTheSlowestCallOfEachKindIsTold(t *testing.T) {
	inBubble(t, &sluggish{calls: []time.Duration{50 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond}}, func(t *testing.T, f *fixture) {
		f.device(t)
		families, text := f.scrape(t)
		for call, want := range map[string]float64{"a": 0.05, "b": 0.02} {
			if got := value(t, families, "plimsoll_exporter_device_call_seconds", "node", "node-1", "call", call); got != want {
				t.Errorf("%s took %g s, want %g:\n%s", call, got, want, text)
			}
		}
	})
}
