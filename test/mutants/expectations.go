package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

type alertTest struct {
	EvalTime model.Duration `yaml:"eval_time"`
	Name     string         `yaml:"alertname"`
	Expected []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

type promqlTest struct {
	Expr     string         `yaml:"expr"`
	EvalTime model.Duration `yaml:"eval_time"`
	Expected []struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	} `yaml:"exp_samples"`
}

// expectation is what a test expects of an alert or of an expression at a time.
type expectation struct {
	at          time.Duration
	alert, expr string
	want        []string
	// observed are the names of the rules that it names, rules their indexes.
	observed []string
	rules    []int
}

// readExpectations sets expectations.
func (c *testCase) readExpectations(loaded []rule) error {
	for _, t := range c.content.AlertTests {
		e := expectation{at: time.Duration(t.EvalTime), alert: t.Name, observed: []string{t.Name}}
		for _, a := range t.Expected {
			metric := labels.NewBuilder(labels.FromMap(a.Labels)).Set(labels.AlertName, t.Name).Labels()
			e.want = append(e.want, firingAlert(metric, a.Annotations))
		}
		slices.Sort(e.want)
		c.expectations = append(c.expectations, e)
	}
	p := parser.NewParser(parser.Options{})
	for _, t := range c.content.PromQLTests {
		e := expectation{at: time.Duration(t.EvalTime), expr: t.Expr}
		expr, err := p.ParseExpr(t.Expr)
		if err != nil {
			return err
		}
		for _, s := range selectors(expr) {
			e.observed = append(e.observed, selectedNames(loaded, s)...)
		}
		for _, sample := range t.Expected {
			metric, err := p.ParseMetric(sample.Labels)
			if err != nil {
				return err
			}
			e.want = append(e.want, sampleText(metric, sample.Value))
		}
		slices.Sort(e.want)
		c.expectations = append(c.expectations, e)
	}
	return nil
}

// sampleText returns the text by which samples are compared. NaN differs from all values, as for
// promtool.
func sampleText(metric labels.Labels, value float64) string {
	return fmt.Sprintf("%s %016x", metric, math.Float64bits(value+0))
}

// selectedNames returns the names of the rules whose series a selector selects, ALERTS for any
// alert.
func selectedNames(rules []rule, s *parser.VectorSelector) []string {
	names := []string{s.Name}
	for _, m := range s.LabelMatchers {
		switch {
		case s.Name == "ALERTS" && m.Name == "alertname" && m.Type == labels.MatchEqual:
			return []string{m.Value}
		case s.Name == "" && m.Name == model.MetricNameLabel:
			for _, r := range rules {
				if m.Matches(r.name()) {
					names = append(names, r.name())
				}
			}
		}
	}
	return names
}

// failure returns how the first expectation fails, or "" if none fails. Expectations that do not
// depend on the changed rule cannot fail.
func (s *simulation) failure() string {
	for _, e := range s.test.expectations {
		if s.base != nil && !slices.ContainsFunc(e.rules, func(i int) bool { return s.depends[i] }) {
			continue
		}
		got, err := s.observe(e)
		if err != nil {
			return err.Error()
		}
		if !slices.Equal(got, e.want) {
			return fmt.Sprintf("%s%s at %s\nexpected:\n%s\ngot:\n%s", e.alert, e.expr, e.at, strings.Join(e.want, "\n"), strings.Join(got, "\n"))
		}
	}
	return ""
}

// observe returns what there is instead of what an expectation wants.
func (s *simulation) observe(e expectation) ([]string, error) {
	if e.alert != "" {
		return s.firing(e.alert, s.stepAt(e.at.Milliseconds()))
	}
	vector, err := s.query(e.expr, time.UnixMilli(e.at.Milliseconds()), len(s.rules), s.lastStep())
	var got []string
	for _, sample := range vector {
		if math.IsNaN(sample.F) {
			return nil, fmt.Errorf("%s is NaN", sample.Metric)
		}
		got = append(got, sampleText(sample.Metric, sample.F))
	}
	slices.Sort(got)
	return got, err
}

// lastStep returns the last step of the test.
func (s *simulation) lastStep() int {
	last := 0
	for _, e := range s.test.expectations {
		last = max(last, s.stepAt(e.at.Milliseconds()))
	}
	return last
}
