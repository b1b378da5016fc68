// Command mutants changes the rules of rules/ in one place at a time and checks that a unit
// test of rules/tests fails. It prints each change that no test notices (a survivor), and then ends
// with exit code 1.
//
//	go run ./test/mutants -promtool PATH [-file REGEXP] [-run REGEXP] [-tests REGEXP] [-list]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
)

// options select rules and tests.
type options struct {
	promtool          string
	file, rule, tests *regexp.Regexp
	list              bool
}

func main() {
	var o options
	flag.StringVar(&o.promtool, "promtool", "promtool", "path of promtool")
	flag.BoolVar(&o.list, "list", false, "list the mutants and do not test them")
	pattern := func(name, help string) *regexp.Regexp {
		value := &regexp.Regexp{}
		flag.TextVar(value, name, regexp.MustCompile(""), help)
		return value
	}
	o.file = pattern("file", "only rule files whose name matches this regular expression")
	o.rule = pattern("run", "only rules whose name matches this regular expression")
	o.tests = pattern("tests", "only test files whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survivors, err := o.check(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// check returns the number of mutants that no test notices.
func (o options) check(ctx context.Context) (int, error) {
	rules, err := readRules("rules")
	if err != nil {
		return 0, err
	}
	cases, err := readCases("rules", o.tests, rules)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var selected []int
	for i, r := range rules {
		if o.file.MatchString(r.file) && o.rule.MatchString(r.name()) {
			selected = append(selected, i)
		}
	}
	r := runner{promtool: o.promtool, dir: dir, rules: rules, cases: cases}
	if !o.list {
		if err := r.prepare(ctx, selected); err != nil {
			return 0, err
		}
	}
	total, survivors := 0, 0
	for _, i := range selected {
		mutants := mutantsOf(rules[i])
		total += len(mutants)
		if !o.list {
			if mutants, err = r.survivors(ctx, i, mutants); err != nil {
				return survivors, err
			}
			survivors += len(mutants)
		}
		for _, m := range mutants {
			fmt.Printf("%s: %s: %s\n", rules[i].file, rules[i].name(), m.change)
		}
	}
	fmt.Printf("%d mutants, %d survivors\n", total, survivors)
	return survivors, nil
}
