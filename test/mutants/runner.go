package main

import (
	"context"
	"fmt"
	"slices"
)

// runner keeps the mutants that no test has noticed yet, by the index of their rule.
type runner struct {
	mutants map[int][]mutant
}

// run removes the mutants that the tests notice. The cheapest tests come first.
func (r *runner) run(ctx context.Context, cases []*testCase) error {
	slices.SortStableFunc(cases, func(a, b *testCase) int { return a.cost() - b.cost() })
	for _, c := range cases {
		if err := r.runCase(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// cost estimates what a test costs: the number of evaluations of rules.
func (c *testCase) cost() int { return len(c.rules) * (newSimulation(c).lastStep() + 1) }

// runCase removes the mutants that a test notices. The test must succeed with unchanged rules.
func (r *runner) runCase(ctx context.Context, c *testCase) error {
	base := newSimulation(c)
	checked := false
	for _, at := range c.covered {
		index := c.rules[at].index
		if len(r.mutants[index]) == 0 {
			continue
		}
		if !checked {
			if failure := base.failure(); failure != "" {
				return fmt.Errorf("%s fails with unchanged rules: %s", c.name, failure)
			}
			checked = true
		}
		r.mutants[index] = slices.DeleteFunc(r.mutants[index], func(m mutant) bool {
			return ctx.Err() == nil && base.with(at, m.rule).failure() != ""
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
