package metrics_test

import (
	"fmt"
	"maps"
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

// Cases of the sample time that random histories seldom have. Both modes must have the given result.
func TestSampleTimeInRareCases(t *testing.T) {
	gpus := func(name string) metrics.Node {
		return metrics.Node{Name: name, Model: h100, Resource: gpu, Devices: 8, Ready: true}
	}
	silent := func(n metrics.Node) metrics.Node { n.Silent = true; return n }
	withoutPlugin := func(n metrics.Node) metrics.Node { n.Devices = 0; return n }
	collected := func(n metrics.Node, age time.Duration) metrics.Node {
		n.CollectedAt = start.Add(-age)
		return n
	}
	cpus := metrics.Node{Name: "cpu", Ready: true, CPU: 4000}
	fpga := metrics.Node{Name: "fpga", Model: "U55", Resource: "example.com/fpga", Devices: 1, Ready: true, Silent: true}
	const none = -1
	all := func(nodes ...metrics.Node) []metrics.Node { return nodes }
	rules := loadRules(t)
	for name, steps := range map[string][]step{
		"scaled to zero": {
			{0, all(cpus, gpus("n1")), "", 0},
			{15 * time.Second, all(cpus), "", none},
			{284 * time.Second, all(cpus), "", none},
			{15 * time.Second, all(cpus), "", 0},
			{15 * time.Second, all(cpus, withoutPlugin(gpus("n1"))), "", 0},
			{15 * time.Second, all(cpus, silent(withoutPlugin(gpus("n1")))), "", none},
		},
		"scaled to zero for exactly the lookback": {
			{0, all(cpus, gpus("n1")), "", 0}, {150 * time.Second, all(cpus), "", none}, {150 * time.Second, all(cpus), "", 0},
		},
		"without nodes":                            {{0, all(), "", none}},
		"without kube-state-metrics":               {{0, all(cpus), metrics.KubeState, none}},
		"a node for the exporter, no accelerators": {{0, all(cpus, fpga), "", none}},
		"the last scrape is as old as the lookback": {
			{0, all(cpus), "", 0}, {299_999 * time.Millisecond, nil, "", 299_999 * time.Millisecond}, {time.Millisecond, nil, "", none},
		},
		"a report counts for a day": {
			{0, all(gpus("n1"), collected(gpus("n2"), 23*time.Hour+59*time.Minute), collected(gpus("n3"), 23*time.Hour+59*time.Minute)), "", none},
			{15 * time.Second, all(gpus("n1"), silent(withoutPlugin(gpus("n2"))), silent(withoutPlugin(gpus("n3")))), "", none},
			{60 * time.Second, all(gpus("n1"), silent(withoutPlugin(gpus("n2"))), silent(withoutPlugin(gpus("n3")))), "", 0},
		},
		"the rules are not evaluated for the lookback": {
			{0, all(gpus("n1"), gpus("n2"), gpus("n3")), "", 0},
			{299 * time.Second, all(gpus("n1"), silent(withoutPlugin(gpus("n2"))), silent(withoutPlugin(gpus("n3")))), "", none},
			{300 * time.Second, all(gpus("n1"), silent(withoutPlugin(gpus("n2"))), silent(withoutPlugin(gpus("n3")))), "", 0},
		},
		"a node is deleted": {
			{0, all(gpus("n1"), gpus("n2"), gpus("n3")), "", 0},
			{15 * time.Second, all(gpus("n1"), silent(gpus("n2")), silent(gpus("n3"))), "", none},
			{15 * time.Second, all(gpus("n1")), "", 0},
		},
		"half of the nodes report": {
			{0, all(gpus("n1"), silent(gpus("n2"))), "", 0}, {15 * time.Second, all(gpus("n1"), silent(gpus("n2")), silent(gpus("n3"))), "", none},
		},
		"a clock is ahead":    {{0, all(collected(gpus("n1"), -59*time.Second)), "", -59 * time.Second}, {time.Second, all(collected(gpus("n1"), -61*time.Second)), "", none}},
		"a collection is old": {{0, all(collected(gpus("n1"), 59*time.Second)), "", 59 * time.Second}, {time.Second, nil, "", none}},
	} {
		t.Run(name, func(t *testing.T) {
			stores := map[string]*metrics.Store{"closed form": newStore(t, metrics.Options{}), "rules": newStore(t, metrics.Options{Mode: metrics.RulesEngine, Rules: rules})}
			at := start
			for i, st := range steps {
				at = at.Add(st.after)
				for mode, s := range stores {
					snap := metrics.Snapshot{Cluster: "c1", Nodes: st.nodes, Failed: []metrics.Part{st.failed}}
					if st.nodes != nil || i == 0 {
						if err := s.Scrape(at, snap); err != nil {
							t.Fatal(err)
						}
					}
					if err := s.Evaluate(at); err != nil {
						t.Fatal(err)
					}
					want := map[string]float64{}
					if st.sampled != none {
						want["cluster=c1"] = float64(at.Add(-st.sampled).UnixMilli()) / 1000
					}
					if got := seriesOf(t, s, "min by (cluster) (cluster:plimsoll_sample_timestamp_seconds:min)", at); !maps.Equal(got, want) {
						t.Errorf("step %d: the %s has the sample time %v, want %v", i, mode, got, want)
					}
				}
			}
		})
	}
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
