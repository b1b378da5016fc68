package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// doors are options for the mutants of the package door that match a regular expression.
func doors(only string) options {
	return options{count: 20, packages: []string{"testdata/door"}, only: regexp.MustCompile(only), timeout: time.Minute}
}

func TestCheck(t *testing.T) {
	o := doors("Adult|Fee|size")
	o.tests = []string{"./testdata/house"}
	var out strings.Builder
	found, err := o.check(t.Context(), &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := `
testdata/door/door.go:6: IsAdult: >= -> > in age >= 18: SURVIVED
testdata/door/door.go:6: IsAdult: >= -> < in age >= 18: killed by test/mutants/gocode/testdata/door/TestIsAdult
testdata/door/door.go:11: Fee: + -> - in visitors + 2: killed by test/mutants/gocode/testdata/house/TestFees

survived: testdata/door/door.go:6: IsAdult: >= -> > in age >= 18
-	return age >= 18
+	return age > 18

3 mutants of 11 places: 2 killed, 0 by timeout, 1 survived; 1 more did not compile, 0 are equivalent
    1 killed by ./testdata/house
    1 killed by own tests
`
	if diff := cmp.Diff(want, "\n"+out.String()); diff != "" {
		t.Error(diff)
	}
	if got := found.count(survived); got != 1 {
		t.Errorf("%d survivors", got)
	}
}

// The command builds the mutant, because GOFLAGS contains the overlay.
func TestCheckRunsCommands(t *testing.T) {
	o := doors("Fee")
	o.commands = []string{"go test ./testdata/house"}
	found, err := o.check(t.Context(), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.results) != 1 || found.results[0].verdict() != "killed by go test ./testdata/house" {
		t.Errorf("got %v", found.results)
	}
}

func TestCheckStopsMutantsThatHang(t *testing.T) {
	o := doors(`Rooms: -= -> \+=`)
	o.timeout = 3 * time.Second
	found, err := o.check(t.Context(), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if found.count(timedOut) != 1 || len(found.results) != 1 {
		t.Errorf("got %v", found.results)
	}
}

func TestCheckNeedsTestsThatSucceed(t *testing.T) {
	o := doors("Adult")
	o.commands = []string{"exit 3"}
	_, err := o.check(t.Context(), io.Discard, io.Discard)
	if want := "test/mutants/gocode/testdata/door: exit 3 without a mutant: killed by exit 3"; fmt.Sprint(err) != want {
		t.Errorf("got error %v", err)
	}
}

func TestEquivalents(t *testing.T) {
	s := loadOne(t, "testdata/door")
	entries := []equivalent{
		{s.name(), "IsAdult", ">= -> > in age >= 18", "The test does not try the age 18."},
		{s.name(), "IsAdult", ">= -> > in age >= 21", "The age was 21 in an earlier version."},
		{"operator/internal/admission/gate", "IsAdult", ">= -> > in age >= 21", "It is another package."},
	}
	var found report
	for _, m := range found.withoutEquivalents(s, entries) {
		if m.change == entries[0].change {
			t.Errorf("%s is an equivalent", m)
		}
	}
	want := []string{s.name() + ": IsAdult: >= -> > in age >= 21: no such mutant, remove it from equivalents.go"}
	if diff := cmp.Diff(want, found.unused); diff != "" || found.equivalent != 1 {
		t.Errorf("%d equivalents, %s", found.equivalent, diff)
	}
}
