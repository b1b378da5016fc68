// Command mutants changes the rules of rules/ in one place at a time and checks that a unit
// test of rules/tests fails. It prints each change that no test notices (a survivor), and then ends
// with exit code 1.
//
//	go run ./test/mutants -promtool PATH [-file REGEXP] [-run REGEXP] [-list]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
)

func main() {
	promtool := flag.String("promtool", "promtool", "path of promtool")
	file := flag.String("file", "", "only rule files whose name matches this regular expression")
	run := flag.String("run", "", "only rules whose name matches this regular expression")
	list := flag.Bool("list", false, "list the mutants and do not test them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survivors, err := check(ctx, *promtool, *file, *run, *list)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// check returns the number of mutants that no test notices.
func check(ctx context.Context, promtool, file, run string, list bool) (int, error) {
	inFile, err := regexp.Compile(file)
	if err != nil {
		return 0, err
	}
	named, err := regexp.Compile(run)
	if err != nil {
		return 0, err
	}
	rules, err := readRules("rules")
	if err != nil {
		return 0, err
	}
	cases, err := readCases("rules", rules)
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
		if inFile.MatchString(r.file) && named.MatchString(r.name()) {
			selected = append(selected, i)
		}
	}
	r := runner{promtool: promtool, dir: dir, rules: rules, cases: cases}
	if !list {
		if err := r.prepare(ctx, selected); err != nil {
			return 0, err
		}
	}
	total, survivors := 0, 0
	for _, i := range selected {
		mutants := mutantsOf(rules[i])
		total += len(mutants)
		if !list {
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
