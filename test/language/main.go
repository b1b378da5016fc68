// Command language checks the English of the tree: words of the private vocabulary
// that operator/docs/glossary.md replaced, and pronouns in comments.
//
// Usage: go run ./test/language [-v] [PATH...]
//
// Without a path it checks every tracked file. It exits with 1 if it found anything.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() { os.Exit(run()) }

func run() int {
	verbose := flag.Bool("v", false, "also print the pronouns per 100 words of each file above the limit")
	flag.Parse()
	files, err := tracked(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "language:", err)
		return 2
	}
	var total count
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "language:", err)
			return 2
		}
		problems, counted := check(name, text)
		for _, p := range problems {
			fmt.Println(p)
		}
		found += len(problems)
		total = total.plus(counted)
		if *verbose && counted.words > 50 && counted.per100() > maxPronouns {
			fmt.Printf("%s: %.1f pronouns per 100 words of comment\n", name, counted.per100())
		}
	}
	fmt.Printf("%d files: %d private words, %.1f pronouns per 100 words of comment (limit %.0f)\n", len(files), found, total.per100(), maxPronouns)
	if found > 0 || total.per100() > maxPronouns {
		return 1
	}
	return 0
}

// tracked lists the files below paths that git tracks and people read.
func tracked(paths []string) ([]string, error) {
	out, err := exec.Command("git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, paths...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []string
	for _, name := range strings.Fields(string(out)) {
		if _, err := os.Stat(name); err == nil && isRead(name) {
			files = append(files, name)
		}
	}
	return files, nil
}
