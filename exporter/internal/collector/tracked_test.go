package collector

import (
	"errors"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Idle time before the allocation does not count. Only a busy device is at 0.
func TestIdleAllocatedStartsAtAllocation(t *testing.T) {
	start := time.Unix(1000, 0)
	reading := func(at time.Duration, utilization float64) device.Reading {
		r := device.Reading{Time: start.Add(at)}
		r.Set(device.GPUUtil, utilization)
		return r
	}
	a, b := []podmap.Holder{{Pod: "a"}}, []podmap.Holder{{Pod: "b"}}
	d := &trackedDevice{}
	for _, step := range []struct {
		at          time.Duration
		utilization float64
		by          []podmap.Holder
		want        time.Duration
	}{
		{0, 0, nil, 0},
		{10 * time.Hour, 0, a, time.Millisecond},
		{10*time.Hour + time.Minute, 0, a, time.Minute},
		{10*time.Hour + 2*time.Minute, 50, a, 0},
		{10*time.Hour + 3*time.Minute, 0, a, time.Millisecond},
		{10*time.Hour + 5*time.Minute, 0, a, 2 * time.Minute},
		{10*time.Hour + 6*time.Minute, 0, b, time.Millisecond},
		{10*time.Hour + 7*time.Minute, 0, b, time.Minute},
	} {
		d.updateIdleSince(reading(step.at, step.utilization))
		d.updateHolders(step.by, start.Add(step.at))
		if got := d.idleAllocated(start.Add(step.at)); len(step.by) > 0 && got != step.want {
			t.Errorf("at %s: idle for %s, want %s", step.at, got, step.want)
		}
	}
}

// MIG instances do not report utilization. The activity of their engine replaces it.
func TestIdleSinceOfInstanceFollowsEngineActivity(t *testing.T) {
	for active, idle := range map[float64]bool{0: true, 0.5: false} {
		d := &trackedDevice{}
		r := device.Reading{Time: time.Unix(1_800_000_000, 0)}
		r.Set(device.EngineActive, active)
		d.updateIdleSince(r)
		if _, ok := utilization(r); !ok || d.idleSince.IsZero() == idle {
			t.Errorf("active %g: utilization known: %t, idle since %s", active, ok, d.idleSince)
		}
	}
}

// A device may have been busy while it could not be read. The idle time starts again.
func TestIdleTimeEndsWithFailedReading(t *testing.T) {
	start := time.Unix(1000, 0)
	idleAt := func(at time.Duration) readResult {
		r := device.Reading{Time: start.Add(at)}
		r.Set(device.GPUUtil, 0)
		return readResult{reading: r}
	}
	for name, fail := range map[string]func(d *trackedDevice){
		"an error": func(d *trackedDevice) {
			d.recordReading(start.Add(time.Minute), readResult{err: errors.New("broken")}, nil)
		},
		"lost": func(d *trackedDevice) { d.recordReading(start.Add(time.Minute), readResult{err: device.ErrLost}, nil) },
		"hung": (*trackedDevice).recordHang,
	} {
		t.Run(name, func(t *testing.T) {
			d := &trackedDevice{}
			d.recordReading(start, idleAt(0), nil)
			if got := d.idleAllocated(start.Add(time.Minute)); got != time.Minute {
				t.Fatalf("idle for %s, want 1m", got)
			}
			fail(d)
			later := 40 * time.Minute
			d.recordReading(start.Add(later), idleAt(later), nil)
			if got := d.idleAllocated(start.Add(later)); got > time.Second {
				t.Errorf("idle for %s after the failure, want about 0", got)
			}
		})
	}
}

// The same is true while the source cannot list its devices, or the device of a MIG instance cannot be
// read.
func TestIdleTimeEndsWithFailureOfOthers(t *testing.T) {
	instance := migUUID(0, 7, 0)
	for name, tc := range map[string]struct {
		uuid      string
		instances []device.Instance
		setFailed func(s *fakeSource, failed bool)
	}{
		"the list": {uuid(1), nil, func(s *fakeSource, failed bool) {
			s.err = nil
			if failed {
				s.err = errors.New("driver not loaded")
			}
		}},
		"the list of a partitioned device": {instance, []device.Instance{{GI: 7, Profile: "1g.10gb"}}, func(s *fakeSource, failed bool) {
			s.err = nil
			if failed {
				s.err = errors.New("driver not loaded")
			}
		}},
		"the device of an instance": {instance, []device.Instance{{GI: 7, Profile: "1g.10gb"}}, func(s *fakeSource, failed bool) {
			s.fails = map[string]bool{uuid(0): failed}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			now := time.Unix(1000, 0)
			f.cfg.Now = func() time.Time { return now }
			f.source.override = func(d device.Device, r *device.Reading) {
				r.Time = now
				r.Set(device.GPUUtil, 0)
				for _, i := range tc.instances {
					if d.Instance == nil && d.Index == 0 {
						i.Parent = d.UUID
						part := d
						part.UUID, part.Instance = instance, &i
						r.MIG, r.Instances = true, append(r.Instances, part)
					}
				}
			}
			collectAfter := func(d time.Duration) time.Duration {
				now = now.Add(d)
				_ = f.Collect(t.Context()) // fails with the list
				return f.tracked[tc.uuid].idleAllocated(now)
			}
			collectAfter(0)
			if got := collectAfter(time.Minute); got != time.Minute {
				t.Fatalf("idle for %s, want 1m", got)
			}
			tc.setFailed(f.source, true)
			collectAfter(time.Minute)
			tc.setFailed(f.source, false)
			if got := collectAfter(40 * time.Minute); got > time.Second {
				t.Errorf("idle for %s after the failure, want about 0", got)
			}
		})
	}
}
