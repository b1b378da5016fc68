package membership

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

func TestPlanOfRankedList(t *testing.T) {
	for _, tc := range []struct {
		name    string
		current []string
		inUse   map[string]bool
		rounds  [][]Ranked
		want    [][]string
	}{
		{name: "clusters join in the order of their points", rounds: [][]Ranked{decided("a", 10, "b", 50)}, want: [][]string{{"b", "a"}}},
		{name: "an undecided cluster leaves after two rounds", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 0), decided("a", 0), decided("a", 0)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"a"}}},
		{name: "an undecided cluster in use stays", current: []string{"a", "b"}, inUse: map[string]bool{"b": true},
			rounds: [][]Ranked{decided("a", 0), decided("a", 0), decided("a", 0), decided("a", 0)},
			want:   [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{name: "a decision within two rounds resets the count", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 0), decided("a", 0, "b", 0), decided("a", 0), decided("a", 0), decided("a", 0)},
			want:   [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}, {"a"}}},
		{name: "the last cluster stays", current: []string{"a"}, rounds: [][]Ranked{nil, nil, nil, nil}, want: [][]string{{"a"}, {"a"}, {"a"}, {"a"}}},
		{name: "a lead below OrderGain changes no order", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 50, "b", 59), decided("a", 50, "b", 59), decided("a", 50, "b", 59)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{name: "a lead of OrderGain changes the order after two rounds", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 50, "b", 60), decided("a", 50, "b", 60), decided("a", 50, "b", 60)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"b", "a"}}},
		{name: "an alternating lead changes no order", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 50, "b", 90), decided("a", 90, "b", 50), decided("a", 50, "b", 90), decided("a", 90, "b", 50)},
			want:   [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{name: "unknown points rank after negative points", rounds: [][]Ranked{decided("a", nil, "b", -100, "c", 50)}, want: [][]string{{"c", "b", "a"}}},
		{name: "a cluster with unknown points for two rounds moves to the end", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", nil, "b", -100), decided("a", nil, "b", -100), decided("a", nil, "b", -100)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"b", "a"}}},
		{name: "unknown points of all clusters change no order", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("b", nil, "a", nil), decided("b", nil, "a", nil), decided("b", nil, "a", nil)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, planRounds(true, tc.current, tc.inUse, tc.rounds...)); diff != "" {
				t.Errorf("rounds (-want +got):\n%s", diff)
			}
		})
	}
}

// Kueue reconciles every workload of a configuration when its list changes, even if only the
// order does.
func TestPlanOfSortedList(t *testing.T) {
	for _, tc := range []struct {
		name    string
		current []string
		rounds  [][]Ranked
		want    [][]string
	}{
		{name: "clusters join in the order of their names", rounds: [][]Ranked{decided("b", 50, "a", 10)}, want: [][]string{{"a", "b"}}},
		{name: "points change nothing", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 0, "b", 100), decided("a", 0, "b", 100), decided("a", 0, "b", 100)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{name: "the order of the decisions changes nothing", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("b", 0, "a", 0), decided("b", 0, "a", 0), decided("b", 0, "a", 0)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{name: "an unsorted list stays as it is until a cluster joins", current: []string{"c", "a"},
			rounds: [][]Ranked{decided("a", 0, "c", 0), decided("a", 0, "b", 0, "c", 0)}, want: [][]string{{"c", "a"}, {"a", "b", "c"}}},
		{name: "an unsorted list stays as it is until a cluster leaves", current: []string{"c", "b", "a"},
			rounds: [][]Ranked{decided("a", 0, "c", 0), decided("a", 0, "c", 0), decided("a", 0, "c", 0)}, want: [][]string{{"c", "b", "a"}, {"c", "b", "a"}, {"a", "c"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, planRounds(false, tc.current, nil, tc.rounds...)); diff != "" {
				t.Errorf("rounds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanIsLimitedToMaxClusters(t *testing.T) {
	var many []Ranked
	for i := range 25 {
		many = append(many, Ranked{Name: fmt.Sprintf("c%02d", i), Points: gate.Known(float64(i))})
	}
	var history History
	result := Plan([]string{"c00"}, many, nil, &history, Settings{Period: time.Second, Ranked: true}, t0)
	if len(result.Clusters) != MaxClusters || result.Clusters[0] != "c00" || result.Clusters[1] != "c24" {
		t.Errorf("a member must keep its place and the best must fill the free slots: %v", result.Clusters)
	}
	if diff := cmp.Diff([]string{"c05", "c04", "c03", "c02", "c01"}, result.Truncated); diff != "" {
		t.Errorf("truncated (-want +got):\n%s", diff)
	}
}

func TestPlanIsPendingWhileAChangeIsDue(t *testing.T) {
	for _, tc := range []struct {
		name    string
		current []string
		decided []Ranked
		inUse   map[string]bool
		want    bool
	}{
		{"no change", []string{"a"}, decided("a", 0), nil, false},
		{"an undecided cluster will leave", []string{"a", "b"}, decided("a", 0), nil, true},
		{"an undecided cluster is in use", []string{"a", "b"}, decided("a", 0), map[string]bool{"b": true}, true},
		{"a new order will apply", []string{"a", "b"}, decided("a", 0, "b", 10), nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var history History
			if got := Plan(tc.current, tc.decided, tc.inUse, &history, Settings{Period: period, Ranked: true}, t0).Pending; got != tc.want {
				t.Errorf("pending: got %t, want %t", got, tc.want)
			}
		})
	}
}

// A cluster that left and that another client added again has two rounds once more.
func TestPlanForgetsClustersThatLeft(t *testing.T) {
	var history History
	now := t0
	round := func(current ...string) []string {
		now = now.Add(period)
		return Plan(current, decided("a", 0), nil, &history, Settings{Period: period, Ranked: true}, now).Clusters
	}
	for range 3 {
		round("a", "b")
	}
	round("a")
	if diff := cmp.Diff([]string{"a", "b"}, round("a", "b")); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}
