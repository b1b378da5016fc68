package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// simulation evaluates the rules of a test at each step of its evaluation interval, with
// Prometheus' engine and in promtool's order. It evaluates a rule at a step only if an
// expectation or another rule reads the result.
type simulation struct {
	test   *testCase
	engine *promql.Engine
	// rules are in the order of evaluation. results are by rule and step.
	rules   []rule
	results []map[int]vectorOrError
	// base is the simulation of the unchanged rules. It has the results of all rules that do not
	// depend on the changed rule.
	base    *simulation
	depends []bool
}

type vectorOrError struct {
	vector promql.Vector
	err    error
}

const lookback = 5 * time.Minute

func newSimulation(c *testCase) *simulation {
	s := &simulation{test: c, rules: c.rules, results: make([]map[int]vectorOrError, len(c.rules))}
	s.engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10000, Timeout: 100 * time.Second, LookbackDelta: lookback,
		NoStepSubqueryIntervalFn: func(int64) int64 { return c.interval.Milliseconds() },
		EnableAtModifier:         true, EnableNegativeOffset: true,
	})
	return s
}

// with returns the simulation in which a changed rule replaces the one at the index.
func (s *simulation) with(index int, changed rule) *simulation {
	variant := &simulation{test: s.test, engine: s.engine, base: s, depends: s.test.dependents[index], results: make([]map[int]vectorOrError, len(s.rules))}
	variant.rules = append(append(append(variant.rules, s.rules[:index]...), changed), s.rules[index+1:]...)
	return variant
}

// stepAt returns the last step at or before a time in milliseconds.
func (s *simulation) stepAt(ms int64) int {
	if ms < 0 {
		return -1
	}
	return int(ms / s.test.interval.Milliseconds())
}

func (s *simulation) timeOf(step int) time.Time {
	return time.UnixMilli(int64(step) * s.test.interval.Milliseconds()).UTC()
}

// result returns what the expression of a rule returns at a step.
func (s *simulation) result(index, step int) (promql.Vector, error) {
	if s.base != nil && !s.depends[index] {
		return s.base.result(index, step)
	}
	if known, ok := s.results[index][step]; ok {
		return known.vector, known.err
	}
	vector, err := s.query(s.rules[index].content.Expr, s.timeOf(step), index, step)
	if err == nil {
		err = s.rules[index].label(vector)
	}
	if s.results[index] == nil {
		s.results[index] = map[int]vectorOrError{}
	}
	s.results[index][step] = vectorOrError{vector, err}
	return vector, err
}

// label replaces the name of the samples by that of the rule and adds the labels of the rule.
func (r rule) label(vector promql.Vector) error {
	b := labels.NewBuilder(labels.EmptyLabels())
	for i := range vector {
		b.Reset(vector[i].Metric)
		b.Del(model.MetricNameLabel)
		for name, value := range r.content.Labels {
			b.Set(name, value)
		}
		if r.content.Alert != "" {
			b.Set(labels.AlertName, r.content.Alert)
		} else {
			b.Set(model.MetricNameLabel, r.content.Record)
		}
		vector[i].Metric = b.Labels()
	}
	if vector.ContainsSameLabelset() {
		return errors.New("two results have the same labels")
	}
	return nil
}

// query returns the result of an expression for the rule at the index. The expectations have an
// index after the last rule.
func (s *simulation) query(expr string, at time.Time, index, step int) (promql.Vector, error) {
	ctx := context.Background()
	q, err := s.engine.NewInstantQuery(ctx, reader{s, index, step}, nil, expr, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, res.Err
	}
	switch v := res.Value.(type) {
	case promql.Vector:
		return append(promql.Vector(nil), v...), nil // Close takes back the vector.
	case promql.Scalar:
		return promql.Vector{{T: v.T, F: v.V}}, nil
	}
	return nil, errors.New("the result is neither a vector nor a scalar")
}
