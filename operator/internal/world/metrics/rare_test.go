package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// step is one scrape and one evaluation of the rules, a time after the step before it.
type step struct {
	after time.Duration
	// nodes of the cluster. Nil means that there is no scrape.
	nodes  []metrics.Node
	failed metrics.Part
	// sampled is the age of the cluster's sample time after the step, or -1 if it has none.
	sampled time.Duration
}

// A query reuses its last result only while no other one is possible.
func TestResultsAreNotReusedForTooLong(t *testing.T) {
	type event struct {
		after time.Duration
		value float64       // of a scrape of c1; 0 = none
		other bool          // a scrape of c2
		want  float64       // of a query
		at    time.Duration // of the query, relative to now
	}
	const none = -1
	for name, events := range map[string][]event{
		"the value changes":           {{0, 1, false, 1, 0}, {time.Minute, 1, false, 1, 0}, {time.Minute, 2, false, 2, 0}},
		"the lookback ends":           {{0, 1, false, 1, 0}, {299 * time.Second, 0, false, 1, 0}, {time.Second, 0, false, none, 0}},
		"new samples prolong":         {{0, 1, false, 1, 0}, {200 * time.Second, 1, false, 1, 0}, {200 * time.Second, 0, false, 1, 0}, {100 * time.Second, 0, false, none, 0}},
		"back after a gap":            {{0, 1, false, 1, 0}, {330 * time.Second, 0, false, none, 0}, {30 * time.Second, 1, false, 1, 0}},
		"a query for a later time":    {{0, 1, false, none, 6 * time.Minute}, {2 * time.Minute, 1, false, 1, 4 * time.Minute}},
		"a query for an earlier time": {{0, 1, false, 1, 0}, {time.Minute, 2, false, 1, -time.Second}, {time.Minute, 2, false, 2, 0}, {0, 0, false, none, -3 * time.Minute}, {0, 0, false, 2, 0}},
		"dropped":                     {{0, 1, false, 1, 0}, {16 * time.Minute, 0, true, none, 0}},
		"dropped and back":            {{0, 1, false, 1, 0}, {16 * time.Minute, 0, true, none, 0}, {time.Minute, 1, false, 1, 0}, {5 * time.Minute, 0, false, none, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s, at := newStore(t, metrics.Options{}), start
			for i, e := range events {
				at = at.Add(e.after)
				snap := metrics.Snapshot{Cluster: "c1", Extra: []metrics.Sample{{Name: "x", Value: e.value}}}
				if e.other {
					snap = metrics.Snapshot{Cluster: "c2"}
				}
				if e.value != 0 || e.other {
					if err := s.Scrape(at, snap); err != nil {
						t.Fatal(err)
					}
				}
				want := "map[]"
				if e.want != none {
					want = fmt.Sprint(map[string]float64{"": e.want})
				}
				if got := fmt.Sprint(seriesOf(t, s, "sum(x)", at.Add(e.at))); got != want {
					t.Errorf("event %d: the query returns %s, want %s", i, got, want)
				}
			}
		})
	}
}

// The results of some queries change although no sample does.
func TestResultsThatDependOnTheTime(t *testing.T) {
	reuses, evaluates := newStore(t, metrics.Options{}), newStore(t, metrics.Options{})
	metrics.EvaluateAlways(evaluates)
	for i := range 40 {
		at := start.Add(time.Duration(i) * 20 * time.Second)
		for _, s := range []*metrics.Store{reuses, evaluates} {
			if i%3 != 0 || i > 25 {
				continue
			}
			if err := s.Scrape(at, metrics.Snapshot{Cluster: "c1", Extra: []metrics.Sample{{Name: "x", Value: float64(1 + i/12)}}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, expr := range []string{
			"x", "-x", "vector(1)", "time()", "time() - x", "timestamp(x)", "minute()", "count_over_time(x[2m])", "x offset 90s", "x offset -20s", "x @ 1700000100", "max_over_time(x[3m:20s])",
			`{__name__=~"x|y"}`, `absent(x)`, `x or vector(time())`, "day_of_year(vector(time())) + x", "x + on () group_left () (x offset 1m)", "count_over_time(x[30s]) or x", "x @ end()",
		} {
			if want, got := fmt.Sprint(seriesOf(t, evaluates, expr, at)), fmt.Sprint(seriesOf(t, reuses, expr, at)); want != got {
				t.Errorf("%s after %v returns %s, want %s", expr, at.Sub(start), got, want)
			}
		}
	}
}
