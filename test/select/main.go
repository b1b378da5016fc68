// Command select prints which tests `go test` has to run, so that a Makefile needs no list of
// tests that someone may forget to extend.
//
//	go run ./test/select tagged TAG PATTERN...   arguments of go test: the tests that the build tag TAG adds, and their packages
//	go run ./test/select concurrent PATTERN...   packages with tests that need the race detector
//	go run ./test/select unraced PATTERN...      arguments of go test: the tests of these packages in files with the build tag !race
//	go run ./test/select sequential PATTERN...   all other packages with tests
//	go run ./test/select changed BRANCH          packages that changed since HEAD left the branch
//	go run ./test/select affected BRANCH         these, and those that import them
//	go run ./test/select quarter N               regexp for -run: the end-to-end tests of quarter N, from 1 to 4
//	go run ./test/select fast-and-quarter N      the same with the tests of make test-e2e-fast
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

const usage = "usage: select tagged TAG PATTERN... | unraced PATTERN... | concurrent PATTERN... | sequential PATTERN... | changed BRANCH | affected BRANCH | quarter N | fast-and-quarter N"

func main() {
	out, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "select:", err)
		os.Exit(1)
	}
	fmt.Println(out)
}

// run returns the output of the command.
func run(args []string) (string, error) {
	if len(args) < 2 {
		return "", errors.New(usage)
	}
	command, args := args[0], args[1:]
	switch command {
	case "tagged", "unraced":
		return runSelection(command, args)
	case "concurrent", "sequential":
		concurrent, sequential, err := divide(".", args...)
		if command == "sequential" {
			return strings.Join(sequential, " "), err
		}
		return strings.Join(concurrent, " "), err
	case "changed", "affected":
		dir, err := os.Getwd()
		if err != nil {
			return "", err
		}
		packages, err := changedPackages(dir, args[0], command == "affected")
		return strings.Join(packages, " "), err
	case "quarter", "fast-and-quarter":
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 1 || n > len(quarters) {
			return "", fmt.Errorf("there is no quarter %q: use a number from 1 to %d", args[0], len(quarters))
		}
		if command == "quarter" {
			return quarters[n-1].pattern(), nil
		}
		fast, err := fastTests(".")
		return quarters[n-1].pattern(fast...), err
	}
	return "", errors.New(usage)
}

// runSelection returns the arguments of go test for the command tagged or unraced.
func runSelection(command string, args []string) (string, error) {
	var found selection
	var err error
	if command == "unraced" {
		var concurrent []string
		if concurrent, _, err = divide(".", args...); err == nil {
			found, err = testsWithoutRace(".", concurrent...)
		}
	} else {
		found, err = testsOfTag(".", args[0], args[1:]...)
	}
	if err != nil {
		return "", err
	}
	return found.arguments(), nil
}

// alternatives returns a regexp that matches exactly the names.
func alternatives(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
