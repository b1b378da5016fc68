//go:build !race

package metrics_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// The tests of this file are much slower with the race detector. Others test the same goroutines with it.

// TestModesAgree evaluates the shipped rules and the closed form over the same random histories. All
// queries of gates, and all series that the closed form records, must have the same results.
func TestModesAgree(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	queries, rules := append(operatorQueries(), recorded...), loadRules(t)
	results := map[string]int{}
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { compareModes(t, seed, rules, queries, results) })
	}
	for _, expr := range queries {
		if results[expr] == 0 && *seeds >= 4 {
			t.Errorf("%s never has a result, so the comparison means nothing", expr)
		}
	}
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
