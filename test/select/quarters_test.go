package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/test/lab/scenario"
)

// allEndToEndTests returns the tests that `make test-e2e` runs, with the subtests of
// TestScenarios in its place.
func allEndToEndTests(t *testing.T) []string {
	t.Helper()
	// go list reads the folder in another process. Go's test cache only notices a new file there
	// if the test itself reads the folder.
	if _, err := os.ReadDir("../e2e"); err != nil {
		t.Fatal(err)
	}
	listed, err := listPackages("../..", "e2e,long", []string{"./test/e2e"})
	if err != nil || len(listed) != 1 {
		t.Fatal(listed, err)
	}
	tests, err := testsIn(listed[0].testFiles())
	if err != nil {
		t.Fatal(err)
	}
	tests = slices.DeleteFunc(tests, func(name string) bool { return name == scenarioTest })
	for _, s := range scenario.All {
		tests = append(tests, scenarioTest+"/"+s.Name)
	}
	return tests
}

func TestEachEndToEndTestIsInOneQuarter(t *testing.T) {
	shortest := 0
	count := map[string]int{}
	for i, q := range quarters {
		if q.seconds() < quarters[shortest].seconds() {
			shortest = i
		}
		for _, e := range q {
			count[e.test]++
		}
	}
	all := allEndToEndTests(t)
	if len(all) < 50 {
		t.Fatalf("found %d tests", len(all))
	}
	for _, test := range all {
		if count[test] != 1 {
			t.Errorf("%s is in %d quarters, want 1; quarter %d is the shortest", test, count[test], shortest+1)
		}
		delete(count, test)
	}
	for test := range count {
		t.Errorf("there is no end-to-end test %s: remove it from its quarter", test)
	}
}

// The longest quarter decides how long a check of a change takes.
func TestQuartersTakeEquallyLong(t *testing.T) {
	total := 0
	for _, q := range quarters {
		total += q.seconds()
	}
	for i, q := range quarters {
		if mean := total / len(quarters); q.seconds() > mean*11/10 || q.seconds() < mean*9/10 {
			t.Errorf("quarter %d takes %d s, the mean is %d s: move tests", i+1, q.seconds(), mean)
		}
	}
}

// TestPatternsSelectTheirTests matches names as package testing does: alternatives first, then each
// element of a name.
func TestPatternsSelectTheirTests(t *testing.T) {
	for i, q := range quarters {
		var selected []string
		for _, test := range allEndToEndTests(t) {
			if matches(t, q.pattern(), test) {
				selected = append(selected, test)
			}
		}
		var want []string
		for _, e := range q {
			want = append(want, e.test)
		}
		slices.Sort(selected)
		slices.Sort(want)
		if !slices.Equal(selected, want) {
			t.Errorf("the pattern of quarter %d selects %v, want %v", i+1, selected, want)
		}
	}
}

// matches returns true if -run=pattern selects the test with all elements of its name.
func matches(t *testing.T, pattern, test string) bool {
	t.Helper()
	elements := strings.Split(test, "/")
	tests, scenarios, found := strings.Cut(pattern, "|^"+scenarioTest)
	if !found {
		t.Fatalf("the pattern %s has no scenarios", pattern)
	}
	return slices.ContainsFunc([]string{tests, "^" + scenarioTest + scenarios}, func(alternative string) bool {
		exprs := strings.Split(alternative, "/")
		if len(exprs) != len(elements) {
			return false
		}
		for i, expr := range exprs {
			if !regexp.MustCompile(expr).MatchString(elements[i]) {
				return false
			}
		}
		return true
	})
}

func TestUnknownQuarter(t *testing.T) {
	for _, command := range []string{"quarter", "fast-and-quarter"} {
		for _, n := range []string{"0", "5", "first", ""} {
			if out, err := run([]string{command, n}); err == nil {
				t.Errorf("%s %q: got %q, want an error", command, n, out)
			}
		}
	}
}

func TestQuarterCommand(t *testing.T) {
	out, err := run([]string{"quarter", "1"})
	if err != nil || out != quarters[0].pattern() {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestFastTestsRunWithEachQuarter(t *testing.T) {
	fast, err := fastTests("../..")
	if err != nil || len(fast) < 5 {
		t.Fatal(fast, err)
	}
	for i, q := range quarters {
		pattern := q.pattern(fast...)
		for _, e := range q {
			if !matches(t, pattern, e.test) {
				t.Errorf("the pattern of quarter %d does not select %s", i+1, e.test)
			}
		}
		for _, test := range fast {
			if !matches(t, pattern, test) || strings.Count(pattern, test+"|") > 1 {
				t.Errorf("the pattern of quarter %d does not select %s once", i+1, test)
			}
		}
	}
}
