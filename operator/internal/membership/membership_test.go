package membership

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

func decided(names ...any) []Ranked {
	var list []Ranked
	for i := 0; i < len(names); i += 2 {
		r := Ranked{Name: names[i].(string)}
		if points, ok := names[i+1].(int); ok {
			r.Points = gate.Known(float64(points))
		}
		list = append(list, r)
	}
	return list
}

// follow a configuration over rounds of ten seconds.
func follow(current []string, inUse map[string]bool, rounds ...[]Ranked) [][]string {
	var memory History
	var history [][]string
	for i, d := range rounds {
		current = Plan(current, d, inUse, &memory, 10*time.Second, t0.Add(time.Duration(i)*10*time.Second)).Clusters
		history = append(history, current)
	}
	return history
}

func TestMembership(t *testing.T) {
	for _, tc := range []struct {
		name    string
		current []string
		inUse   map[string]bool
		rounds  [][]Ranked
		want    [][]string
	}{
		{name: "begins in the order of the points", rounds: [][]Ranked{decided("a", 10, "b", 50)}, want: [][]string{{"b", "a"}}},
		{name: "a cluster that is no longer decided leaves after two rounds", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 0), decided("a", 0), decided("a", 0)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"a"}}},
		{name: "but not while it is in use", current: []string{"a", "b"}, inUse: map[string]bool{"b": true},
			rounds: [][]Ranked{decided("a", 0), decided("a", 0), decided("a", 0), decided("a", 0)},
			want:   [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{name: "coming back in time resets the rounds", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 0), decided("a", 0, "b", 0), decided("a", 0), decided("a", 0), decided("a", 0)},
			want:   [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}, {"a"}}},
		{name: "never empty", current: []string{"a"}, rounds: [][]Ranked{nil, nil, nil, nil}, want: [][]string{{"a"}, {"a"}, {"a"}, {"a"}}},
		{name: "a small lead changes no order", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 50, "b", 59), decided("a", 50, "b", 59), decided("a", 50, "b", 59)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{name: "a large lead does once it lasted two rounds", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 50, "b", 60), decided("a", 50, "b", 60), decided("a", 50, "b", 60)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"b", "a"}}},
		{name: "a lead that comes and goes never does", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", 50, "b", 90), decided("a", 90, "b", 50), decided("a", 50, "b", 90), decided("a", 90, "b", 50)},
			want:   [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{name: "one without points comes last, also after those below 0", rounds: [][]Ranked{decided("a", nil, "b", -100, "c", 50)}, want: [][]string{{"c", "b", "a"}}},
		{name: "and goes there once it lost them for two rounds", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("a", nil, "b", -100), decided("a", nil, "b", -100), decided("a", nil, "b", -100)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"b", "a"}}},
		{name: "that nobody has points changes no order", current: []string{"a", "b"},
			rounds: [][]Ranked{decided("b", nil, "a", nil), decided("b", nil, "a", nil), decided("b", nil, "a", nil)}, want: [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, follow(tc.current, tc.inUse, tc.rounds...)); diff != "" {
				t.Errorf("rounds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMembershipIsCapped(t *testing.T) {
	var many []Ranked
	for i := range 25 {
		many = append(many, Ranked{Name: fmt.Sprintf("c%02d", i), Points: gate.Known(float64(i))})
	}
	var memory History
	w := Plan([]string{"c00"}, many, nil, &memory, time.Second, t0)
	if len(w.Clusters) != MaxClusters || w.Clusters[0] != "c00" || w.Clusters[1] != "c24" {
		t.Errorf("a member keeps its place and the best fill the rest: %v", w.Clusters)
	}
	if diff := cmp.Diff([]string{"c05", "c04", "c03", "c02", "c01"}, w.Truncated); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
}

func TestMembershipForgetsWhoLeft(t *testing.T) {
	var memory History
	at := t0
	round := func(current ...string) []string {
		at = at.Add(10 * time.Second)
		return Plan(current, decided("a", 0), nil, &memory, 10*time.Second, at).Clusters
	}
	for range 3 {
		round("a", "b")
	}
	round("a")
	if got := round("a", "b"); cmp.Diff([]string{"a", "b"}, got) != "" {
		t.Errorf("somebody put it back: it has two rounds again, got %v", got)
	}
}
