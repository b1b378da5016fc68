package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func rank(name string, priority int32, waited time.Duration) Rank {
	return Rank{Priority: priority, Since: t0.Add(-waited), Name: name}
}

func TestBefore(t *testing.T) {
	const aging = time.Hour
	for _, tc := range []struct {
		name         string
		first, later Rank
	}{
		{"higher priority", rank("b", 10, time.Second), rank("a", 1, 59*time.Minute)},
		{"same priority, longer wait", rank("b", 1, time.Minute), rank("a", 1, time.Second)},
		{"same time", rank("a", 1, time.Minute), rank("b", 1, time.Minute)},
		{"aged before higher priority", rank("b", 1, time.Hour), rank("a", 1000, 59*time.Minute)},
		{"both aged, longer wait before higher priority", rank("b", 1, 2*time.Hour), rank("a", 1000, time.Hour)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !tc.first.Before(tc.later, aging, t0) || tc.later.Before(tc.first, aging, t0) {
				t.Errorf("want %+v before %+v", tc.first, tc.later)
			}
			if tc.first.Before(tc.first, aging, t0) {
				t.Error("a rank is before itself")
			}
		})
	}
	if old, urgent := rank("a", 1, 24*time.Hour), rank("b", 2, 0); !urgent.Before(old, 0, t0) {
		t.Error("without aging, a long wait outranks a priority")
	}
}

// Over a random trace of arrivals, the number of workloads before an aged one never grows.
func TestAgingBoundsTheNumberOfPredecessors(t *testing.T) {
	const aging = 10 * time.Minute
	random := rand.New(rand.NewPCG(1, 2))
	victim := Rank{Priority: 0, Since: t0, Name: "victim"}
	waiting := []Rank{victim}
	last := -1
	for second := range 3600 {
		now := t0.Add(time.Duration(second) * time.Second)
		waiting = append(waiting, Rank{Priority: random.Int32N(1000), Since: now, Name: "other"})
		slices.SortFunc(waiting, func(a, b Rank) int {
			switch {
			case a.Before(b, aging, now):
				return -1
			case b.Before(a, aging, now):
				return 1
			}
			return 0
		})
		if second%2 == 0 && waiting[0] != victim { // one in two arrivals is placed
			waiting = waiting[1:]
		}
		if n := slices.Index(waiting, victim); victim.IsAged(aging, now) {
			if last >= 0 && n > last {
				t.Fatalf("%d predecessors at %d s, want at most %d", n, second, last)
			}
			last = n
		}
	}
	if last != 0 {
		t.Errorf("%d workloads are still before the aged one, want none", last)
	}
}
