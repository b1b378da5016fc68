package unittest

import (
	"encoding/xml"
	"fmt"
	"strings"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// fileResult is the result of a test file. err is set if the file can't be read.
type fileResult struct {
	file  string
	err   error
	tests []testResult
}

// testResult is what differs in one test.
type testResult struct {
	name     string
	failures []string
}

// writeText writes a line per test, and what differs. It returns command.ErrFindings if a test fails.
func writeText(a *command.App, results []fileResult) (err error) {
	for _, r := range results {
		if r.err != nil {
			err = command.ErrFindings
			_, _ = fmt.Fprintln(a.ErrOut, "error:", format.Printable(r.err.Error()))
		}
		for _, t := range r.tests {
			if len(t.failures) == 0 {
				_, _ = fmt.Fprintf(a.Out, "ok    %s: %s\n", r.file, format.Printable(t.name))
				continue
			}
			err = command.ErrFindings
			_, _ = fmt.Fprintf(a.Out, "FAIL  %s: %s\n", r.file, format.Printable(t.name))
			for _, failure := range t.failures {
				_, _ = fmt.Fprintf(a.Out, "      %s\n", format.Printable(failure))
			}
		}
	}
	return err
}

type junitReport struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Error   *junitMessage `xml:"error,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes the results in the XML format of JUnit. It returns command.ErrFindings if a test fails.
func writeJUnit(a *command.App, results []fileResult) error {
	var report junitReport
	failed := false
	for _, r := range results {
		suite := junitSuite{Name: r.file, Tests: len(r.tests)}
		if r.err != nil {
			failed, suite.Tests, suite.Errors = true, 1, 1
			suite.Cases = append(suite.Cases, junitCase{Name: "read", Class: r.file, Error: &junitMessage{Message: r.err.Error()}})
		}
		for _, t := range r.tests {
			c := junitCase{Name: t.name, Class: r.file}
			if len(t.failures) > 0 {
				failed, suite.Failures = true, suite.Failures+1
				c.Failure = &junitMessage{Message: t.failures[0], Text: strings.Join(t.failures, "\n")}
			}
			suite.Cases = append(suite.Cases, c)
		}
		report.Suites = append(report.Suites, suite)
	}
	text, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.Out, "%s%s\n", xml.Header, text)
	if failed {
		return command.ErrFindings
	}
	return nil
}
