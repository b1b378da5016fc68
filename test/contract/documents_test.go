package contract

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// document is a Markdown file.
type document struct {
	path   string // from the root of the repository
	text   string
	blocks []codeBlock
}

// codeBlock is a fenced block. Its lines have no common indentation.
type codeBlock struct {
	language string
	line     int // of the first line of the code
	code     string
}

var skippedFolders = map[string]bool{".git": true, ".cache": true, "bin": true, "dist": true, "node_modules": true}

// readDocuments returns all Markdown files of the repository.
func readDocuments(t *testing.T) []document {
	t.Helper()
	var all []document
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if e != nil && skippedFolders[e.Name()] {
				return filepath.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		all = append(all, document{path: filepath.ToSlash(relative), text: string(text), blocks: codeBlocks(string(text))})
		return err
	})
	if err != nil || len(all) < 20 {
		t.Fatalf("%d documents, %v", len(all), err)
	}
	return all
}

var fence = regexp.MustCompile("^( *)```([a-z]*)")

// codeBlocks returns the fenced blocks of a text.
func codeBlocks(text string) []codeBlock {
	var blocks []codeBlock
	var current *codeBlock
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && current == nil:
			indent = m[1]
			current = &codeBlock{language: m[2], line: i + 2}
		case m != nil:
			blocks = append(blocks, *current)
			current = nil
		case current != nil:
			current.code += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return blocks
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchor returns the anchor of a heading, as GitHub derives it.
func anchor(title string) string {
	title = strings.NewReplacer("`", "", "*", "").Replace(title)
	title = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1")
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
}

// Each relative link of a document has a target, and each anchor a heading.
func TestLinksOfDocuments(t *testing.T) {
	documents := readDocuments(t)
	anchors := map[string]map[string]bool{}
	for _, d := range documents {
		anchors[d.path] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(withoutCode(d.text), -1) {
			anchors[d.path][anchor(m[1])] = true
		}
	}
	for _, d := range documents {
		for _, m := range markdownLink.FindAllStringSubmatch(withoutCode(d.text), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := d.path
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(d.path), target))
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: link %s: %v", d.path, m[1], err)
				continue
			}
			if fragment != "" && anchors[path] != nil && !anchors[path][fragment] {
				t.Errorf("%s: link %s: %s has no such heading", d.path, m[1], path)
			}
		}
	}
}

var (
	goFileLink = regexp.MustCompile(`\]\((\.\./internal/[^)]+\.go)\)`)
	quotedFunc = regexp.MustCompile("`([a-zA-Z]+)`")
)

// Each function that architecture.md names under "Where to find" is in the file of its row.
func TestFunctionsOfDocuments(t *testing.T) {
	const folder = "operator/docs"
	_, section, _ := strings.Cut(readFile(t, filepath.Join(root, folder, "architecture.md")), "\n## Where to find\n")
	section, _, _ = strings.Cut(section, "\n## ")
	n := 0
	for line := range strings.Lines(section) {
		file := goFileLink.FindStringSubmatch(line)
		if file == nil {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|\n "), "|")
		source := readFile(t, filepath.Join(root, folder, file[1]))
		for _, m := range quotedFunc.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			n++
			if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + m[1] + `\(`).MatchString(source) {
				t.Errorf("%s has no function %s", file[1], m[1])
			}
		}
	}
	if n == 0 {
		t.Error("architecture.md names no functions")
	}
}

// withoutCode removes fenced blocks.
func withoutCode(text string) string {
	var kept strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		if fence.MatchString(line) {
			inside = !inside
			continue
		}
		if !inside {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
