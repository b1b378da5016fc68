package collector

import (
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
