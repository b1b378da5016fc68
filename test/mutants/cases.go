package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// testFile is a file of unit tests of rules, as promtool reads it.
type testFile struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	GroupEvalOrder     []string       `yaml:"group_eval_order"`
	Tests              []testContent  `yaml:"tests"`
}

type testContent struct {
	Name           string            `yaml:"name"`
	Interval       model.Duration    `yaml:"interval"`
	ExternalLabels map[string]string `yaml:"external_labels"`
	InputSeries    []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	AlertTests  []alertTest  `yaml:"alert_rule_test"`
	PromQLTests []promqlTest `yaml:"promql_expr_test"`
}

// testCase is one test of a test file.
type testCase struct {
	name     string
	content  testContent
	interval time.Duration
	input    []promql.Series
	// rules are the rules that this test needs, in the order of evaluation: those of its rule
	// files that can have a result and on which an expectation depends.
	rules []rule
	// covered are the indexes in rules of those that read a series of the test. dependents says
	// for each rule which rules depend on it, itself included.
	covered    []int
	dependents [][]bool
	// expectations are what the test expects.
	expectations []expectation
}

// readCases returns the tests of the test files with a matching name.
func readCases(dir string, named *regexp.Regexp, rules []rule) ([]*testCase, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "tests", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var cases []*testCase
	for _, path := range paths {
		if !named.MatchString(filepath.Base(path)) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var file testFile
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		if err := decoder.Decode(&file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		loaded := file.loadedRules(rules)
		for i, content := range file.Tests {
			c := &testCase{name: fmt.Sprintf("%s#%d", filepath.Base(path), i), content: content, interval: time.Duration(file.EvaluationInterval)}
			if err := c.prepare(loaded); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// loadedRules returns the rules of the rule files of a test file in the order of evaluation.
func (f testFile) loadedRules(rules []rule) []rule {
	var loaded []rule
	for _, r := range rules {
		if slices.ContainsFunc(f.RuleFiles, func(pattern string) bool {
			matches, err := filepath.Match(filepath.Base(pattern), r.file)
			return err == nil && matches
		}) {
			loaded = append(loaded, r)
		}
	}
	slices.SortStableFunc(loaded, func(a, b rule) int {
		return max(slices.Index(f.GroupEvalOrder, a.group), 0) - max(slices.Index(f.GroupEvalOrder, b.group), 0)
	})
	return loaded
}

// prepare parses the input, and selects the rules that the test needs.
func (c *testCase) prepare(loaded []rule) error {
	if err := c.readInput(); err != nil {
		return err
	}
	if err := c.readExpectations(loaded); err != nil {
		return err
	}
	if err := c.selectRules(loaded); err != nil {
		return err
	}
	c.dependents = dependents(c.rules)
	for i := range c.expectations {
		e := &c.expectations[i]
		for index, r := range c.rules {
			if slices.Contains(e.observed, r.name()) || slices.Contains(e.observed, r.seriesName()) {
				e.rules = append(e.rules, index)
			}
		}
	}
	return nil
}

func (c *testCase) readInput() error {
	p := parser.NewParser(parser.Options{})
	for _, in := range c.content.InputSeries {
		metric, values, err := p.ParseSeriesDesc(in.Series + " " + in.Values)
		if err != nil {
			return err
		}
		series := promql.Series{Metric: metric}
		for i, v := range values {
			if v.Histogram != nil {
				return fmt.Errorf("%s: histograms are not supported", in.Series)
			}
			if !v.Omitted {
				series.Floats = append(series.Floats, promql.FPoint{T: int64(i) * time.Duration(c.content.Interval).Milliseconds(), F: v.Value})
			}
		}
		c.input = append(c.input, series)
	}
	return nil
}

// selectRules sets rules and covered.
func (c *testCase) selectRules(loaded []rule) error {
	input := map[string]bool{}
	for _, s := range c.input {
		input[s.Metric.Get(model.MetricNameLabel)] = true
	}
	live, has := liveRules(loaded, input)
	// A rule is part of the test if an expectation names it, or another rule of the test.
	needed := map[int]bool{}
	var need func(name string)
	need = func(name string) {
		for _, i := range live {
			r := loaded[i]
			if needed[i] || r.name() != name && (name != "ALERTS" || r.content.Alert == "") {
				continue
			}
			needed[i] = true
			for _, s := range r.selectors() {
				need(s.Name)
			}
		}
	}
	for _, e := range c.expectations {
		for _, name := range e.observed {
			need(name)
		}
	}
	for _, i := range live {
		if !needed[i] {
			continue
		}
		found := loaded[i].selectors()
		if len(found) == 0 || slices.ContainsFunc(found, func(s *parser.VectorSelector) bool { return has[s.Name] }) {
			c.covered = append(c.covered, len(c.rules))
		}
		c.rules = append(c.rules, loaded[i])
	}
	return nil
}

// liveRules returns the rules that can have a result: those whose expression needs no
// series, or has a selector for an input series or for another live rule. It also returns
// the names of all these series.
func liveRules(loaded []rule, input map[string]bool) ([]int, map[string]bool) {
	has := maps.Clone(input)
	live := map[int]bool{}
	for changed := true; changed; {
		changed = false
		for i, r := range loaded {
			if live[i] {
				continue
			}
			found := r.selectors()
			if len(found) == 0 || strings.Contains(r.content.Expr, "absent") ||
				slices.ContainsFunc(found, func(s *parser.VectorSelector) bool { return has[s.Name] }) {
				live[i], changed = true, true
				has[r.name()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(live)), has
}

// dependents returns for each rule which rules depend on it, itself included.
func dependents(rules []rule) [][]bool {
	readers := make([][]int, len(rules)) // by rule that is read
	for i, r := range rules {
		for _, s := range r.selectors() {
			for j, other := range rules {
				if s.Name == other.seriesName() {
					readers[j] = append(readers[j], i)
				}
			}
		}
	}
	found := make([][]bool, len(rules))
	for i := range rules {
		found[i] = make([]bool, len(rules))
		for queue := []int{i}; len(queue) > 0; queue = queue[1:] {
			if at := queue[0]; !found[i][at] {
				found[i][at] = true
				queue = append(queue, readers[at]...)
			}
		}
	}
	return found
}
