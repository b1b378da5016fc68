package main

import (
	"regexp"
	"slices"
	"testing"
)

func TestShares(t *testing.T) {
	for _, c := range []struct {
		n     int
		sizes []int
		want  []int
	}{
		{10, []int{50, 30, 20}, []int{5, 3, 2}},
		{10, []int{1, 1, 1}, []int{1, 1, 1}},
		{5, []int{100, 100, 1}, []int{3, 2, 0}},
		{5, []int{10, 80, 10}, []int{1, 4, 0}},
		{5, []int{0, 0}, []int{0, 0}},
		{0, []int{3}, []int{0}},
	} {
		if got := shares(c.n, c.sizes); !slices.Equal(got, c.want) {
			t.Errorf("shares(%d, %v) = %v, not %v", c.n, c.sizes, got, c.want)
		}
	}
}

func TestQueuesDependOnTheSeedOnly(t *testing.T) {
	kinds, door := loadOne(t, "testdata/kinds"), loadOne(t, "testdata/door")
	order := func(seed uint64, sources ...*source) []string {
		queues := options{count: 5, seed: seed, only: regexp.MustCompile("")}.queues(sources, &report{})
		var changes []string
		for _, m := range queues[len(queues)-1].mutants {
			changes = append(changes, m.String())
		}
		return changes
	}
	first := order(1, kinds)
	if !slices.Equal(first, order(1, door, kinds)) {
		t.Error("The order of a package depends on another one")
	}
	if slices.Equal(first, order(2, kinds)) {
		t.Error("Two seeds have the same order")
	}
}
