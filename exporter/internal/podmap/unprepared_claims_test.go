package podmap

import (
	"testing"
	"time"
)

// A claim without devices counts for a while. A driver of network cards reports no devices of a claim
// as long as the pod exists.
func TestClaimWithoutDevicesCountsForLimitedTime(t *testing.T) {
	k, p, socket := setup(t)
	defer k.start(t, socket).Stop()
	now := time.Unix(1000, 0)
	p.now = func() time.Time { return now }
	k.hold(pod("a", claim("")), pod("b", claim("")))
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {4 * time.Minute, true}, {time.Minute, false}, {time.Hour, false}} {
		now = now.Add(step.after)
		m := poll(t, p)
		if got := m.Unprepared["claim team-a/c"] && m.IsAllocated([]string{"claim team-a/c"}); got != step.want {
			t.Errorf("at %s: %t, want %t", now, got, step.want)
		}
	}
	k.hold(pod("a", claim(NVIDIADriver, "gpu-1")))
	if m := poll(t, p); len(m.Unprepared) > 0 {
		t.Errorf("a prepared claim is unprepared: %v", m.Unprepared)
	}
	k.hold(pod("a", claim("")))
	if m := poll(t, p); !m.Unprepared["claim team-a/c"] {
		t.Error("a new claim of the same name does not count")
	}
}
