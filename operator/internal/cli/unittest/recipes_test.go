package unittest

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

const cookbook = "../../../../config/samples/cookbook"

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cookbook, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in the cookbook: %v", pattern, err)
	}
	return files
}

func TestTestsOfRecipesPass(t *testing.T) {
	files := glob(t, "tests/*.yaml")
	var out bytes.Buffer
	cmd := New(&command.App{IOStreams: genericclioptions.IOStreams{Out: &out, ErrOut: &out}})
	cmd.SetArgs(files)
	if err := cmd.ExecuteContext(t.Context()); err != nil || strings.Count(out.String(), "ok ") < len(files) {
		t.Errorf("error %v\n%s", err, &out)
	}
}

// commentedRecipe matches a file that begins with two lines of comment.
var commentedRecipe = regexp.MustCompile(`^(# .+\n){2}apiVersion:`)

func TestRecipesHaveCommentsTestsAndRows(t *testing.T) {
	document, err := os.ReadFile("../../../docs/cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, file := range glob(t, "tests/*.yaml") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f testFile
		if err := yaml.Unmarshal(content, &f); err != nil {
			t.Fatal(err)
		}
		for _, path := range relativePaths(file, f.Policy, f.Gate) {
			tested[path] = true
		}
	}
	for _, file := range glob(t, "*.yaml") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !commentedRecipe.Match(content) {
			t.Errorf("%s must begin with two lines of comment", file)
		}
		if !tested[file] {
			t.Errorf("no file in cookbook/tests tests %s", file)
		}
		if !strings.Contains(string(document), "config/samples/cookbook/"+filepath.Base(file)+") |") {
			t.Errorf("operator/docs/cookbook.md has no row for %s", file)
		}
	}
}
