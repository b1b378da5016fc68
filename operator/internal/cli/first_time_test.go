package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// TestFirstTimePolicies lints and previews policies as first-time users write them. The file
// NAME.out has the exact output and the exit codes for NAME.yaml.
func TestFirstTimePolicies(t *testing.T) {
	testFirstTime(t, "testdata/first_time.txtar", 30, func(path, prometheus string) string {
		return runFirstTime("lint", "-f", path) + runFirstTime("preview", "-f", path, "--prometheus", prometheus, "--clusters", "prod-a,prod-b,edge-1")
	})
}

// TestWishes lints policies and gates as first-time users write them for what they wish: each works, or lint says what
// to change.
func TestWishes(t *testing.T) {
	testFirstTime(t, "testdata/wishes.txtar", 20, func(path, _ string) string { return runFirstTime("lint", "-f", path) })
}

// testFirstTime compares what commands print about each file NAME.yaml of an archive with NAME.out.
func testFirstTime(t *testing.T, archive string, atLeast int, commands func(path, prometheus string) string) {
	t.Helper()
	content, err := txtar.ParseFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	outputs := map[string]string{}
	for _, f := range content.Files {
		outputs[f.Name] = string(f.Data)
		if err := os.WriteFile(filepath.Join(folder, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prometheus := httptest.NewServer(&fakePrometheus{file: filepath.Join(folder, "series.txt")})
	defer prometheus.Close()
	updated := &txtar.Archive{Comment: content.Comment}
	policies := 0
	for _, f := range content.Files {
		name, isPolicy := strings.CutSuffix(f.Name, ".yaml")
		if strings.HasSuffix(f.Name, ".out") {
			continue
		}
		updated.Files = append(updated.Files, f)
		if !isPolicy {
			continue
		}
		policies++
		text := commands(filepath.Join(folder, f.Name), prometheus.URL)
		text = strings.NewReplacer(folder+"/", "", prometheus.URL, "http://prometheus:9090").Replace(text)
		if diff := cmp.Diff(outputs[name+".out"], text); diff != "" && !*update {
			t.Errorf("%s (-want +got):\n%s", f.Name, diff)
		}
		updated.Files = append(updated.Files, txtar.File{Name: name + ".out", Data: []byte(text)})
	}
	if policies < atLeast {
		t.Errorf("%d policies", policies)
	}
	if *update {
		if err := os.WriteFile(archive, txtar.Format(updated), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// runFirstTime returns the command, what it prints and its exit code.
func runFirstTime(args ...string) string {
	var out bytes.Buffer
	code := run(context.Background(), args, genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}, func() time.Time { return now })
	return fmt.Sprintf("$ kubectl plimsoll %s\n%s[exit code %d]\n", strings.Join(args, " "), &out, code)
}
