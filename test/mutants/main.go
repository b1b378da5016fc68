// Command mutants changes the rules of rules/ in one place at a time and checks that a unit
// test of rules/tests fails. It prints each change that no test notices: with the reason if no test
// can (equivalent), otherwise as a survivor. With a survivor it ends with exit code 1, and after a
// run of all mutants and tests also with an entry of equivalents.go that selects no mutant.
//
//	go run ./test/mutants [-file REGEXP] [-run REGEXP] [-tests REGEXP] [-list]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
)

// options select rules and tests.
type options struct {
	file, rule, tests *regexp.Regexp
	list              bool
}

func main() {
	var o options
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
	found, err := o.check(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var unused []string
	if o.isFull() {
		unused = found.unused()
	}
	for _, text := range slices.Concat(found.equivalent, found.survivors, unused) {
		fmt.Println(text)
	}
	fmt.Printf("%d mutants, %d equivalent, %d survivors\n", found.total, len(found.equivalent), len(found.survivors))
	if len(found.survivors)+len(unused) > 0 && !o.list {
		os.Exit(1)
	}
}

// isFull reports whether the run tests all mutants with all tests.
func (o options) isFull() bool {
	return !o.list && o.file.String()+o.rule.String()+o.tests.String() == ""
}

// check returns the mutants that no test notices, or with -list all mutants.
func (o options) check(ctx context.Context) (report, error) {
	var found report
	rules, err := readRules("rules")
	if err != nil {
		return found, err
	}
	cases, err := readCases("rules", o.tests, rules)
	if err != nil {
		return found, err
	}
	r := runner{mutants: map[int][]mutant{}}
	for i, one := range rules {
		if o.file.MatchString(one.file) && o.rule.MatchString(one.name()) {
			r.mutants[i] = mutantsOf(one)
			found.total += len(r.mutants[i])
		}
	}
	if !o.list {
		if err := r.run(ctx, cases); err != nil {
			return found, err
		}
	}
	for i, one := range rules {
		for _, m := range r.mutants[i] {
			found.add(one, m)
		}
	}
	return found, nil
}
