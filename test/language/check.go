package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
)

// maxPronouns per 100 words of Go comments.
const maxPronouns = 5.0

// words of the private vocabulary, each with its replacement.
var words = []struct{ pattern, instead string }{
	{`tells?|telling|told`, "reports, says, exports"},
	{`asks|asked|asking|questions?`, "query, queries; request"},
	{`answers?|answered|answering|unanswered`, "result, response; respond, fail"},
	{`anew`, "again"},
	{`nobody|somebody|whoever|nobody's|somebody's`, "name the component"},
	{`mend|mends|mended|mending`, "repair, reset, fix"},
	{`forgive|forgives|forgiven|forgave`, "ignore the condition"},
	{`patient|impatient`, "fail closed while recent"},
	{`blind|blindly`, "no usable metrics"},
	{`rivals?`, "conflicting dispatcher"},
	{`stock dispatcher`, "Kueue's built-in dispatcher"},
	{`doubtful|in part`, "partial, incomplete"},
	{`of late`, "recently"},
	{`in vain`, "without success"},
	{`waiters?`, "wait queue, waiting workload"},
	{`strangers?|courtesy|farewell|pulses?|patience`, "unknown holders, and what each does"},
}

// declared are names of types, functions and fields that say nothing of what they stand for.
var declared = map[string]string{
	"left": "orphaned, remaining", "past": "history", "tracks": "history", "rival": "conflicting dispatcher",
	"stock": "built-in", "others": "name them", "board": "registry", "park": "add", "waiters": "wait queue",
	"over": "quota lost", "gone": "deleted", "behind": "cache is stale", "out": "rejection", "standing": "snapshot", "held": "cached result",
	"seat": "share", "introduction": "name what it does",
}

// pattern matches every word of the private vocabulary.
var pattern = func() *regexp.Regexp {
	var all []string
	for _, w := range words {
		all = append(all, w.pattern)
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`)
}()

var pronoun = regexp.MustCompile(`(?i)\b(?:what|who|that|it|one|nobody)\b`)

var word = regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`)

// allowed findings, by file and a part of the finding.
var allowed = []struct{ file, text string }{
	{"test/language/*", ""},
	{"operator/docs/glossary.md", ""},
	// Held is the state of a score during missing.holdSeconds.
	{"operator/api/v1alpha1/scoringpolicy_status.go", "name Held"},
}

// isRead says whether people read a file: code, documents and manifests, but not what
// a tool generates from them.
func isRead(name string) bool {
	switch path.Ext(name) {
	case ".go", ".md", ".yaml", ".json", ".txtar", ".c", ".txt":
	default:
		return path.Base(name) == "Makefile"
	}
	return !strings.HasPrefix(path.Base(name), "zz_generated") && !strings.HasPrefix(name, "config/crd/")
}

func isAllowed(name, text string) bool {
	for _, a := range allowed {
		if ok, _ := path.Match(a.file, name); ok && strings.Contains(text, a.text) {
			return true
		}
	}
	return false
}

// count of pronouns among words.
type count struct{ pronouns, words int }

func (c count) plus(d count) count { return count{c.pronouns + d.pronouns, c.words + d.words} }

func (c count) per100() float64 {
	if c.words == 0 {
		return 0
	}
	return 100 * float64(c.pronouns) / float64(c.words)
}

// check one file: its private words as file:line: word: text, and its count of pronouns.
func check(name string, text []byte) ([]string, count) {
	var problems []string
	for i, s := range strings.Split(string(text), "\n") {
		for _, found := range pattern.FindAllString(s, -1) {
			if !isAllowed(name, s) {
				problems = append(problems, fmt.Sprintf("%s:%d: %q: write %s", name, i+1, found, instead(found)))
			}
		}
	}
	if path.Ext(name) != ".go" {
		return problems, count{}
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return append(problems, err.Error()), count{}
	}
	var c count
	for _, group := range file.Comments {
		comment := group.Text()
		c = c.plus(count{len(pronoun.FindAllString(comment, -1)), len(word.FindAllString(comment, -1))})
	}
	return append(problems, names(set, file)...), c
}

func instead(found string) string {
	for _, w := range words {
		if regexp.MustCompile(`(?i)^(?:` + w.pattern + `)$`).MatchString(found) {
			return w.instead
		}
	}
	return "something else"
}

// names lists the package-level declarations, methods and fields with a name of the
// private vocabulary.
func names(set *token.FileSet, file *ast.File) []string {
	var problems []string
	report := func(id *ast.Ident) {
		if better, bad := declared[strings.ToLower(id.Name)]; bad {
			problem := fmt.Sprintf("%s: name %s: write %s", set.Position(id.Pos()), id.Name, better)
			if !isAllowed(set.Position(id.Pos()).Filename, problem) {
				problems = append(problems, problem)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			report(n.Name)
		case *ast.TypeSpec:
			report(n.Name)
			if s, ok := n.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, id := range field.Names {
						report(id)
					}
				}
			}
		}
		return true
	})
	return problems
}
