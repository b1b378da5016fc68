package dispatch

import (
	"testing"
	"time"
)

func TestLag(t *testing.T) {
	type observed struct{ nominated, admitted int }
	for _, tc := range []struct {
		name     string
		observed []observed
		at       int
		want     time.Duration
	}{
		{"no admission", nil, 0, 0},
		{"one admission", []observed{{0, 2}}, 10, 2 * time.Second},
		{"a full cluster is no backlog", []observed{{0, 200}, {198, 201}}, 210, 3 * time.Second},
		{"every admission is slow", []observed{{0, 200}, {5, 203}, {9, 205}}, 210, 196 * time.Second},
		{"the backlog is gone", []observed{{0, 200}, {208, 209}}, 210, time.Second},
		{"an old admission says nothing", []observed{{0, 200}}, 261, 0},
		{"a slower admission after the fastest", []observed{{199, 200}, {225, 230}}, 255, time.Second},
		{"a slower admission when the fastest is old", []observed{{199, 200}, {225, 230}}, 261, 5 * time.Second},
		{"an admission that is seen late", []observed{{225, 230}, {199, 200}}, 261, 5 * time.Second},
		{"clocks differ", []observed{{5, 4}}, 10, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var lag Lag
			for _, o := range tc.observed {
				lag.Observe(after(o.nominated), after(o.admitted))
			}
			if got := lag.At(after(tc.at)); got != tc.want {
				t.Errorf("lag %s, want %s", got, tc.want)
			}
		})
	}
}

func TestEvictionLag(t *testing.T) {
	type observed struct{ began, complete int }
	for _, tc := range []struct {
		name     string
		observed []observed
		at       int
		want     time.Duration
	}{
		{"no eviction", nil, 0, 0},
		{"the slowest", []observed{{0, 1}, {0, 40}, {39, 41}}, 42, 40 * time.Second},
		{"all began at once", []observed{{0, 1}, {0, 2}, {0, 3}, {0, 30}}, 30, 30 * time.Second},
		{"a faster eviction when the slowest is old", []observed{{0, 40}, {60, 62}}, 100, 40 * time.Second},
		{"an old eviction says nothing", []observed{{0, 40}, {60, 62}}, 101, 2 * time.Second},
		{"clocks differ", []observed{{5, 4}}, 10, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var lag EvictionLag
			for _, o := range tc.observed {
				lag.Observe(after(o.began), after(o.complete))
			}
			if got := lag.At(after(tc.at)); got != tc.want {
				t.Errorf("lag %s, want %s", got, tc.want)
			}
		})
	}
}

// A nomination that MultiKueue has not acted on yet must not be widened: each further cluster
// makes the backlog longer.
func TestStageCountsFromTheCopy(t *testing.T) {
	pace := Pace{WidenAfterSeconds: 30, Lag: 100 * time.Second}
	for _, tc := range []struct {
		name    string
		r       Record
		seconds int
		stage   Stage
		next    time.Duration
	}{
		{"no copy yet", Record{NominatedAt: t0}, 90, StageWait, 40 * time.Second},
		{"widening is due", Record{NominatedAt: t0}, 130, StageWiden, 30 * time.Second},
		{"no copy of the widening yet", Record{NominatedAt: t0, WidenedAt: after(131)}, 150, StageWait, 70 * time.Second},
		{"all clusters are due", Record{NominatedAt: t0}, 220, StageAll, 60 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if stage, next := tc.r.Stage(pace, after(tc.seconds)); stage != tc.stage || next != tc.next {
				t.Errorf("got %s for %s, want %s for %s", stage, next, tc.stage, tc.next)
			}
		})
	}
}

func TestIsOverdue(t *testing.T) {
	pace := Pace{WidenAfterSeconds: 30, Lag: 100 * time.Second}
	for _, tc := range []struct {
		name    string
		limit   time.Duration
		seconds int
		want    bool
	}{
		{"before the limit", 10 * time.Minute, 699, false},
		{"at the limit", 10 * time.Minute, 700, true},
		{"a short limit leaves time for every stage", time.Minute, 279, false},
		{"after every stage", time.Minute, 280, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := (Record{NominatedAt: t0}).IsOverdue(pace, tc.limit, after(tc.seconds)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
