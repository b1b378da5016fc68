package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// outcome is what became of a mutant.
type outcome int

const (
	notCompiled outcome = iota
	survived
	killed
	timedOut
)

// result is the outcome of a mutant: the stage that ended its test, and the test or the command.
type result struct {
	mutant    mutant
	outcome   outcome
	stage, by string
}

func (r result) String() string { return fmt.Sprintf("%s: %s", r.mutant, r.verdict()) }

func (r result) verdict() string {
	by := r.by
	if r.mutant.source != nil {
		by = strings.TrimPrefix(by, r.mutant.source.module+"/")
	}
	switch r.outcome {
	case survived:
		return "SURVIVED"
	case timedOut:
		return "killed by timeout in " + by
	case notCompiled:
		return "not compiled"
	default: // no detail
	}
	return "killed by " + by
}

// report is what a run found.
type report struct {
	results []result
	// sites is the number of mutants of all packages, chosen of those that the run tests.
	sites, chosen, notCompiled, equivalent int
	// unused are entries of equivalents.go that select no mutant.
	unused []string
}

func (r report) count(o outcome) int {
	n := 0
	for _, one := range r.results {
		if one.outcome == o {
			n++
		}
	}
	return n
}

// print prints the summary.
func (r report) print(out io.Writer) {
	for _, one := range r.results {
		if one.outcome == survived {
			fmt.Fprintf(out, "\nsurvived: %s\n%s", one.mutant, one.mutant.diff())
		}
	}
	byStage := map[string]int{}
	for _, one := range r.results {
		if one.outcome != survived {
			byStage[one.stage]++
		}
	}
	fmt.Fprintf(out, "\n%d mutants of %d places: %d killed, %d by timeout, %d survived; %d more did not compile, %d are equivalent\n",
		len(r.results), r.sites, r.count(killed), r.count(timedOut), r.count(survived), r.notCompiled, r.equivalent)
	for _, stage := range slices.Sorted(maps.Keys(byStage)) {
		fmt.Fprintf(out, "%5d killed by %s\n", byStage[stage], stage)
	}
	for _, text := range r.unused {
		fmt.Fprintln(out, text)
	}
}

// diff returns the lines that the mutant changes, before and after.
func (m mutant) diff() string {
	content := string(m.file.content)
	from := strings.LastIndex(content[:m.start], "\n") + 1
	to := len(content)
	if i := strings.Index(content[m.end:], "\n"); i >= 0 {
		to = m.end + i
	}
	var text strings.Builder
	write := func(sign, lines string) {
		if strings.TrimSpace(lines) == "" {
			return
		}
		for line := range strings.SplitSeq(lines, "\n") {
			fmt.Fprintf(&text, "%s%s\n", sign, line)
		}
	}
	write("-", content[from:to])
	write("+", content[from:m.start]+m.text+content[m.end:to])
	return text.String()
}
