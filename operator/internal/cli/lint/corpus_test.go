package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

var (
	wantComment = regexp.MustCompile(`# want((?: "[^"]+")+)`)
	wantText    = regexp.MustCompile(`"([^"]+)"`)
)

// TestLintCorpus lints policies as users write them. A comment # want "text" at the end of a
// line requires a finding in this line with this rule or text in its message. There must be no
// other findings.
func TestLintCorpus(t *testing.T) {
	for _, file := range []string{"good.yaml", "bad.yaml", "per_cluster.yaml", "gates.yaml"} {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join("testdata", file)
			var out, errOut bytes.Buffer
			cmd := New(&command.App{IOStreams: genericclioptions.IOStreams{Out: &out, ErrOut: &errOut}})
			cmd.SetArgs([]string{"-f", path, "-o", "json"})
			if err := cmd.ExecuteContext(t.Context()); err != nil && !errors.Is(err, command.ErrFindings) {
				t.Fatal(err)
			}
			var list struct {
				Items []finding `json:"items"`
			}
			if err := json.Unmarshal(out.Bytes(), &list); err != nil {
				t.Fatalf("%v: %s", err, &errOut)
			}
			findings := list.Items
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i, source := range strings.Split(string(content), "\n") {
				findings = takeWanted(t, fmt.Sprintf("%s:%d", path, i+1), source, i+1, findings)
			}
			for _, f := range findings {
				t.Errorf("unexpected: %s", f)
			}
		})
	}
}

// The samples have no findings.
func TestLintSamples(t *testing.T) {
	var out bytes.Buffer
	cmd := New(&command.App{IOStreams: genericclioptions.IOStreams{Out: &out, ErrOut: &out}})
	cmd.SetArgs([]string{"../../../../config/samples"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}

// takeWanted returns the findings without those that the comment in a line requires.
func takeWanted(t *testing.T, at, source string, lineNumber int, findings []finding) []finding {
	t.Helper()
	m := wantComment.FindStringSubmatch(source)
	if m == nil {
		return findings
	}
	for _, want := range wantText.FindAllStringSubmatch(m[1], -1) {
		found := -1
		for i, f := range findings {
			if f.LineNumber == lineNumber && (f.Rule == want[1] || strings.Contains(f.Message, want[1])) {
				found = i
			}
		}
		if found < 0 {
			t.Errorf("%s: no finding %q", at, want[1])
			continue
		}
		findings = append(findings[:found:found], findings[found+1:]...)
	}
	return findings
}
