package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// testCase is one test of a test file.
type testCase struct {
	name string
	// file is the content of the test file without tests and rule files, content the test.
	file, content map[string]any
	// rules are the indexes of the rules that this test needs: those of its rule files that can
	// have a result and on which an expectation depends. covered are those of them that read
	// a series of the test.
	rules, covered []int
	// cost is the time that the test takes with unchanged rules.
	cost time.Duration
}

// readCases returns the tests of the test files with a matching name.
func readCases(dir string, named *regexp.Regexp, rules []rule) ([]testCase, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "tests", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var cases []testCase
	for _, path := range paths {
		if !named.MatchString(filepath.Base(path)) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var file map[string]any
		if err := yaml.Unmarshal(text, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var loaded []int
		for i, r := range rules {
			if slices.ContainsFunc(asList(file["rule_files"]), func(pattern any) bool {
				matches, err := filepath.Match(filepath.Base(pattern.(string)), r.file)
				return err == nil && matches
			}) {
				loaded = append(loaded, i)
			}
		}
		tests := asList(file["tests"])
		delete(file, "tests")
		delete(file, "rule_files")
		for i, test := range tests {
			c := testCase{name: fmt.Sprintf("%s#%d", filepath.Base(path), i), file: file, content: test.(map[string]any)}
			if err := c.selectRules(rules, loaded); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			cases = append(cases, c)
		}
	}
	return cases, nil
}

func asList(v any) []any { list, _ := v.([]any); return list }

var seriesName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)

// selectRules sets rules.
func (c *testCase) selectRules(rules []rule, loaded []int) error {
	input := map[string]bool{}
	for _, s := range asList(c.content["input_series"]) {
		input[seriesName.FindString(fmt.Sprint(s.(map[string]any)["series"]))] = true
	}
	live, has, err := liveRules(rules, loaded, input)
	if err != nil {
		return err
	}
	observed, err := c.observations(rules)
	if err != nil {
		return err
	}
	// A rule is part of the test if an expectation names it, or another rule of the test.
	needed := map[int]bool{}
	var need func(name string)
	need = func(name string) {
		for _, i := range live {
			r := rules[i]
			if needed[i] || r.name() != name && (name != "ALERTS" || r.content.Alert == "") {
				continue
			}
			needed[i] = true
			expr, _ := parse(r.content.Expr)
			for _, s := range selectors(expr) {
				need(s.Name)
			}
		}
	}
	for _, name := range observed {
		need(name)
	}
	for _, i := range live {
		if !needed[i] {
			continue
		}
		c.rules = append(c.rules, i)
		expr, _ := parse(rules[i].content.Expr)
		found := selectors(expr)
		if len(found) == 0 || slices.ContainsFunc(found, func(s *parser.VectorSelector) bool { return has[s.Name] }) {
			c.covered = append(c.covered, i)
		}
	}
	return nil
}

// liveRules returns the rules that can have a result: those whose expression needs no
// series, or has a selector for an input series or for another live rule. It also returns
// the names of all these series.
func liveRules(rules []rule, loaded []int, input map[string]bool) ([]int, map[string]bool, error) {
	has := map[string]bool{}
	for name := range input {
		has[name] = true
	}
	live := map[int]bool{}
	for changed := true; changed; {
		changed = false
		for _, i := range loaded {
			if live[i] {
				continue
			}
			expr, err := parse(rules[i].content.Expr)
			if err != nil {
				return nil, nil, err
			}
			found := selectors(expr)
			if len(found) == 0 || strings.Contains(rules[i].content.Expr, "absent") ||
				slices.ContainsFunc(found, func(s *parser.VectorSelector) bool { return has[s.Name] }) {
				live[i], changed = true, true
				has[rules[i].name()] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(loaded), func(i int) bool { return !live[i] }), has, nil
}

// observations returns the rules that the expectations name.
func (c *testCase) observations(rules []rule) ([]string, error) {
	var names []string
	for _, v := range asList(c.content["alert_rule_test"]) {
		names = append(names, fmt.Sprint(v.(map[string]any)["alertname"]))
	}
	for _, v := range asList(c.content["promql_expr_test"]) {
		expr, err := parse(fmt.Sprint(v.(map[string]any)["expr"]))
		if err != nil {
			return nil, err
		}
		for _, s := range selectors(expr) {
			names = append(names, selectedNames(rules, s)...)
		}
	}
	return names, nil
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

func selectors(expr parser.Expr) []*parser.VectorSelector {
	var found []*parser.VectorSelector
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			found = append(found, s)
		}
		return nil
	})
	return found
}
