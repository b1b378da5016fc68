// Command gocode changes Go source in one place at a time and runs tests against each change, a
// mutant. A mutant that no test fails on is a survivor. A seed chooses the places, so that the same
// command tests the same mutants. The tree is never changed: tests are built with go's -overlay. Source
// is read once, so do not edit the packages during a run.
//
// Tests run in stages, in this order, until one fails:
//  1. the tests of the mutant's own package
//  2. each -tests: packages for one call of go test, separated by spaces
//  3. each -then: a command for sh. GOFLAGS contains the overlay, so that every go command that it
//     runs builds the mutant.
//
// The command prints a line for each mutant, then a summary. The exit code is 1 if more than -max
// mutants survive or an entry of equivalents.go selects no mutant, and 2 if the mutants could not be
// tested.
//
//	go run ./test/mutants/gocode -n 20 -seed 1 -packages operator/internal/admission/gate,operator/internal/admission/ledger \
//	  -tests './operator/internal/admission/gate ./operator/internal/admission/ledger ./operator/internal/admission/waitqueue' \
//	  -tests ./operator/internal/controller/workload
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	// count is the number of mutants to test.
	count int
	seed  uint64
	// packages are folders of packages to mutate.
	packages []string
	// only selects mutants by "FILE: FUNCTION: CHANGE".
	only *regexp.Regexp
	// tests are the package patterns of each call of go test; commands follow them.
	tests, commands []string
	// timeout is the limit for all stages of a mutant.
	timeout time.Duration
	// maxSurvivors is the number of survivors that the run accepts.
	maxSurvivors int
	list         bool
	equivalents  []equivalent
}

func main() {
	o := options{only: &regexp.Regexp{}, equivalents: equivalents}
	flag.IntVar(&o.count, "n", 100, "number of mutants to test")
	flag.Uint64Var(&o.seed, "seed", 1, "seed that chooses the mutants")
	flag.Func("packages", "folders of the packages to mutate, separated by commas", func(s string) error {
		o.packages = append(o.packages, strings.Split(s, ",")...)
		return nil
	})
	flag.TextVar(o.only, "run", regexp.MustCompile(""), "only mutants whose FILE: FUNCTION: CHANGE matches this regular expression")
	flag.Func("tests", "packages to test after the mutant's own, separated by spaces; may be repeated", appendTo(&o.tests))
	flag.Func("then", "command to run after all tests, with the overlay in GOFLAGS; may be repeated", appendTo(&o.commands))
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "limit for all tests of a mutant; a mutant that exceeds it counts as killed")
	flag.IntVar(&o.maxSurvivors, "max", 5, "number of survivors up to which the exit code is 0")
	flag.BoolVar(&o.list, "list", false, "list the chosen mutants and do not test them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	found, err := o.check(ctx, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if found.count(survived) > o.maxSurvivors || len(found.unused) > 0 {
		os.Exit(1)
	}
}

func appendTo(values *[]string) func(string) error {
	return func(s string) error {
		*values = append(*values, s)
		return nil
	}
}

// check tests the mutants and prints the results to out, and its progress to progress.
func (o options) check(ctx context.Context, out, progress io.Writer) (report, error) {
	var found report
	if len(o.packages) == 0 {
		return found, errors.New("-packages is missing")
	}
	sources, err := load(ctx, o.packages)
	if err != nil {
		return found, err
	}
	r, err := newRunner(ctx, o)
	if err != nil {
		return found, err
	}
	defer r.close()
	queues := o.queues(sources, &found)
	if !o.list {
		if err := r.checkUnchanged(ctx, sources, progress); err != nil {
			return found, err
		}
	}
	for _, q := range queues {
		for q.quota > 0 && len(q.mutants) > 0 {
			m := q.next()
			started := time.Now()
			var tested result
			switch {
			case !m.compiles():
				tested.outcome = notCompiled
			case o.list:
				fmt.Fprintln(out, m)
			default:
				if tested, err = r.test(ctx, m); err != nil {
					return found, err
				}
			}
			if tested.outcome == notCompiled {
				found.notCompiled++
				continue
			}
			q.quota--
			tested.mutant = m
			found.results = append(found.results, tested)
			if !o.list {
				fmt.Fprintln(out, tested)
				fmt.Fprintf(progress, "%d/%d in %s: %.1f s, %s\n", len(found.results), found.chosen, m.source.name(), time.Since(started).Seconds(), tested.verdict())
			}
		}
	}
	if !o.list {
		found.print(out)
	}
	return found, nil
}
