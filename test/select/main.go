// Command select prints which tests `go test` has to run, so that a Makefile needs no list of
// tests that someone may forget to extend.
//
//	go run ./test/select tagged TAG PATTERN...   arguments of go test: the tests that the build tag TAG adds, and their packages
//	go run ./test/select concurrent PATTERN...   packages with tests that need the race detector
//	go run ./test/select sequential PATTERN...   all other packages with tests
//	go run ./test/select changed BRANCH          packages that changed since HEAD left the branch
//	go run ./test/select affected BRANCH         these, and those that import them
//	go run ./test/select quarter N               regexp for -run: the end-to-end tests of quarter N, from 1 to 4
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

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
	switch {
	case len(args) >= 3 && args[0] == "tagged":
		found, err := testsOfTag(".", args[1], args[2:]...)
		if err != nil {
			return "", err
		}
		return found.arguments(), nil
	case len(args) >= 2 && (args[0] == "concurrent" || args[0] == "sequential"):
		concurrent, sequential, err := divide(".", args[1:]...)
		if args[0] == "sequential" {
			return strings.Join(sequential, " "), err
		}
		return strings.Join(concurrent, " "), err
	case len(args) == 2 && (args[0] == "changed" || args[0] == "affected"):
		dir, err := os.Getwd()
		if err != nil {
			return "", err
		}
		packages, err := changedPackages(dir, args[1], args[0] == "affected")
		return strings.Join(packages, " "), err
	case len(args) == 2 && args[0] == "quarter":
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 || n > len(quarters) {
			return "", fmt.Errorf("there is no quarter %q: use a number from 1 to %d", args[1], len(quarters))
		}
		return quarters[n-1].pattern(), nil
	}
	return "", errors.New("usage: select tagged TAG PATTERN... | concurrent PATTERN... | sequential PATTERN... | changed BRANCH | affected BRANCH | quarter N")
}

// alternatives returns a regexp that matches exactly the names.
func alternatives(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
