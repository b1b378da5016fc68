package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// batch is the largest number of mutants that one process tests.
const batch = 40

// runner runs tests with changed rules.
type runner struct {
	promtool, dir string
	rules         []rule
	cases         []testCase
}

// prepare keeps the tests that can notice one of the selected rules, in the order of their
// cost. Each must succeed with unchanged rules.
func (r *runner) prepare(ctx context.Context, selected []int) error {
	r.cases = slices.DeleteFunc(r.cases, func(c testCase) bool {
		return !slices.ContainsFunc(selected, func(i int) bool { return slices.Contains(c.covered, i) })
	})
	for i := range r.cases {
		c := &r.cases[i]
		start := time.Now()
		failed, err := r.failures(ctx, *c, [][]rule{r.rulesOf(*c, -1, rule{})})
		if err != nil {
			return err
		}
		if failed[0] {
			return fmt.Errorf("%s fails with unchanged rules", c.name)
		}
		c.cost = time.Since(start)
	}
	slices.SortFunc(r.cases, func(a, b testCase) int { return int(a.cost - b.cost) })
	return nil
}

// rulesOf returns the rules of a test. The changed rule replaces the one at the index.
func (r *runner) rulesOf(c testCase, index int, changed rule) []rule {
	rules := make([]rule, 0, len(c.rules))
	for _, at := range c.rules {
		if at == index {
			rules = append(rules, changed)
		} else {
			rules = append(rules, r.rules[at])
		}
	}
	return rules
}

// survivors returns the mutants of the rule at the index that no test notices.
func (r *runner) survivors(ctx context.Context, index int, mutants []mutant) ([]mutant, error) {
	for _, c := range r.cases {
		if !slices.Contains(c.covered, index) {
			continue
		}
		var unnoticed []mutant
		for part := range slices.Chunk(mutants, batch) {
			var variants [][]rule
			for _, m := range part {
				variants = append(variants, r.rulesOf(c, index, m.rule))
			}
			failed, err := r.failures(ctx, c, variants)
			if err != nil {
				return nil, err
			}
			for i, m := range part {
				if !failed[i] {
					unnoticed = append(unnoticed, m)
				}
			}
		}
		mutants = unnoticed
		if len(mutants) == 0 {
			break
		}
	}
	return mutants, nil
}

// failures reports for each variant of the rules whether the test fails with it.
func (r *runner) failures(ctx context.Context, c testCase, variants [][]rule) ([]bool, error) {
	args := []string{"test", "rules", "--junit=" + filepath.Join(r.dir, "junit.xml")}
	for i, rules := range variants {
		name := fmt.Sprintf("rules-%d.yaml", i)
		if err := writeRules(filepath.Join(r.dir, name), rules); err != nil {
			return nil, err
		}
		file := map[string]any{"rule_files": []string{name}, "tests": []any{c.content}}
		for key, value := range c.file {
			file[key] = value
		}
		text, err := yaml.Marshal(file)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(r.dir, fmt.Sprintf("test-%d.yaml", i))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, err
		}
		args = append(args, path)
	}
	// The exit code says whether any test failed. The report says which.
	_ = exec.CommandContext(ctx, r.promtool, args...).Run()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "junit.xml"))
	if err != nil {
		return nil, err
	}
	var report struct {
		Suites []struct {
			Failures int `xml:"failures,attr"`
			Errors   int `xml:"errors,attr"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	if len(report.Suites) != len(variants) {
		return nil, fmt.Errorf("promtool reports %d tests instead of %d", len(report.Suites), len(variants))
	}
	failed := make([]bool, len(variants))
	for i, s := range report.Suites {
		failed[i] = s.Failures+s.Errors > 0
	}
	return failed, nil
}
