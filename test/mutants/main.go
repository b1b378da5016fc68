// Command mutants changes the rules of rules/ in one place at a time and checks that a unit
// test of rules/tests fails. It prints each change that no test notices, and then ends with
// exit code 1.
//
//	go run ./test/mutants -promtool PATH [-run REGEXP]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	promtool := flag.String("promtool", "promtool", "path of promtool")
	run := flag.String("run", "", "only rules whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survivors, err := check(ctx, *promtool, *run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// check returns the number of mutants that no test notices.
func check(ctx context.Context, promtool, run string) (int, error) {
	selected, err := regexp.Compile(run)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS("rules")); err != nil {
		return 0, err
	}
	tests, err := readTests(dir)
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return 0, err
	}
	total, survivors := 0, 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		for _, m := range mutantsOf(string(content)) {
			if !selected.MatchString(m.rule) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return survivors, err
			}
			total++
			if err := os.WriteFile(file, []byte(m.text), 0o644); err != nil {
				return 0, err
			}
			if !isNoticed(ctx, promtool, tests, m.rule) {
				survivors++
				fmt.Printf("%s: %s: no test notices %s\n", filepath.Base(file), m.rule, m.change)
			}
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return 0, err
		}
	}
	fmt.Printf("%d mutants, %d survivors\n", total, survivors)
	return survivors, nil
}

// readTests returns the content of the unit tests by path.
func readTests(dir string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "tests", "*.yaml"))
	if err != nil {
		return nil, err
	}
	tests := map[string]string{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		tests[path] = string(content)
	}
	return tests, nil
}

// isNoticed reports whether a test fails. The tests that name the rule run first.
func isNoticed(ctx context.Context, promtool string, tests map[string]string, rule string) bool {
	subject := strings.TrimPrefix(rule, "Plimsoll")
	paths := make([]string, 0, len(tests))
	for path := range tests {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int {
		if diff := strings.Count(tests[b], subject) - strings.Count(tests[a], subject); diff != 0 {
			return diff
		}
		return strings.Compare(a, b)
	})
	for _, path := range paths {
		if exec.CommandContext(ctx, promtool, "test", "rules", path).Run() != nil {
			return true
		}
	}
	return false
}

// mutant is a changed rule file.
type mutant struct{ rule, change, text string }

var (
	ruleName   = regexp.MustCompile(`(?:alert|record): '?([A-Za-z0-9_:]+)`)
	mutations  = []func(line string) []string{changeNumbers, changeDurations, changeComparisons, changeMatchers}
	number     = regexp.MustCompile(`(?:[<>=] |[*/+-] |, )(\d+(?:\.\d+)?)\b`)
	duration   = regexp.MustCompile(`\[(\d+)([mhd])(?::\w+)?\]|(?:for|keep_firing_for): (\d+)([mh])`)
	comparison = regexp.MustCompile(` (==|!=|<=|>=|<|>) `)
	matcher    = regexp.MustCompile(`\w+(=~|!~|!=|=)"[^"]*",?`)
)

// mutantsOf returns the mutants of a rule file. Comments and annotations are not changed.
func mutantsOf(text string) []mutant {
	var found []mutant
	lines := strings.Split(text, "\n")
	rule, isText := "", false
	for i, line := range lines {
		if m := ruleName.FindStringSubmatch(line); m != nil {
			rule, isText = m[1], false
		}
		isText = isText || strings.HasPrefix(line, "    annotations:")
		if isText || strings.HasPrefix(strings.TrimSpace(line), "#") || strings.Contains(line, "label_replace(") {
			continue
		}
		for _, mutate := range mutations {
			for _, changed := range mutate(line) {
				copied := slices.Clone(lines)
				copied[i] = changed
				found = append(found, mutant{rule, strings.TrimSpace(line) + " -> " + strings.TrimSpace(changed), strings.Join(copied, "\n")})
			}
		}
	}
	return found
}

// changeNumbers makes each number of a line about a quarter larger.
func changeNumbers(line string) []string {
	var changed []string
	for _, at := range number.FindAllStringSubmatchIndex(line, -1) {
		var value float64
		fmt.Sscan(line[at[2]:at[3]], &value)
		changed = append(changed, line[:at[2]]+fmt.Sprint(value*1.25+0.01)+line[at[3]:])
	}
	return changed
}

// changeDurations doubles each window and each "for".
func changeDurations(line string) []string {
	var changed []string
	for _, at := range duration.FindAllStringSubmatchIndex(line, -1) {
		group := 2
		if at[group] < 0 {
			group = 6
		}
		var value int
		fmt.Sscan(line[at[group]:at[group+1]], &value)
		for _, other := range []int{2 * value, (value + 1) / 2} {
			if other != value {
				changed = append(changed, line[:at[group]]+fmt.Sprint(other)+line[at[group+1]:])
			}
		}
	}
	return changed
}

// changeComparisons turns each comparison round, and moves its boundary.
func changeComparisons(line string) []string {
	others := map[string][]string{"==": {"!="}, "!=": {"=="}, "<": {">", "<="}, ">": {"<", ">="}, "<=": {">", "<"}, ">=": {"<", ">"}}
	var changed []string
	for _, at := range comparison.FindAllStringSubmatchIndex(line, -1) {
		for _, other := range others[line[at[2]:at[3]]] {
			changed = append(changed, line[:at[2]]+other+line[at[3]:])
		}
	}
	return changed
}

// changeMatchers removes each label matcher.
func changeMatchers(line string) []string {
	var changed []string
	for _, at := range matcher.FindAllStringIndex(line, -1) {
		changed = append(changed, line[:at[0]]+line[at[1]:])
	}
	return changed
}
