package operator_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "plimsoll.dev/plimsoll/"

// listedPackage is the part of go list -json that the checks need.
type listedPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// row is one line of the import table in the architecture. Paths of this module are
// relative to its root. An entry that ends in "/" includes all packages below.
type row struct {
	pkg  string
	may  []string // packages of this module that pkg may import
	deny []string // packages of other modules that pkg must not depend on, even indirectly
}

// impure are packages that a pure package must not depend on.
var impure = []string{"net/http", "k8s.io/client-go/kubernetes", "k8s.io/client-go/rest", "sigs.k8s.io/controller-runtime/pkg/client"}

var table = []row{
	{pkg: "operator/api/v1alpha1", deny: []string{"sigs.k8s.io/controller-runtime/pkg/client"}},
	{pkg: "operator/internal/normalize", deny: impure},
	{pkg: "operator/internal/promql", deny: []string{"k8s.io/"}},
	{pkg: "operator/internal/score", may: []string{"operator/api/v1alpha1", "operator/internal/normalize"}, deny: impure[1:]},
	{pkg: "operator/internal/gate", may: []string{"operator/api/v1alpha1"}, deny: impure[1:]},
	{pkg: "operator/internal/query", may: []string{"operator/internal/promql"}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/clustermap", may: []string{"operator/api/v1alpha1", "operator/internal/query"}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/hubstate"},
	{pkg: "operator/internal/condition"},
	{pkg: "operator/internal/round", may: []string{
		"operator/api/v1alpha1", "operator/internal/clustermap", "operator/internal/promql", "operator/internal/query", "operator/internal/score",
	}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/dial", may: []string{"operator/api/v1alpha1", "operator/internal/query"}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/publish", may: []string{"operator/internal/score"}},
	{pkg: "operator/internal/controller/", may: []string{
		"operator/api/v1alpha1", "operator/internal/promql", "operator/internal/normalize", "operator/internal/score",
		"operator/internal/gate", "operator/internal/query", "operator/internal/round", "operator/internal/publish", "operator/internal/dial",
		"operator/internal/clustermap", "operator/internal/condition", "operator/internal/hubstate",
	}},
	{pkg: "operator/internal/cli/", may: []string{
		"operator/api/v1alpha1", "operator/internal/promql", "operator/internal/query", "operator/internal/round",
		"operator/internal/score", "operator/internal/gate", "operator/internal/dial", "operator/internal/cli/",
		"operator/internal/clustermap", "operator/internal/condition", "operator/internal/hubstate",
	}},
	{pkg: "exporter/internal/collector", may: []string{"exporter/internal/device", "exporter/internal/podmap"}},
}

func (r row) covers(path string) bool { return within(path, module+r.pkg) }

// within reports whether path is the named package or, if name ends in "/", below it.
func within(path, name string) bool {
	return path == strings.TrimSuffix(name, "/") || strings.HasSuffix(name, "/") && strings.HasPrefix(path, name)
}

// violations returns the violations of the table by one package.
func violations(p listedPackage) []string {
	var found []string
	for _, r := range table {
		if !r.covers(p.ImportPath) {
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module) && !slices.ContainsFunc(r.may, func(m string) bool { return within(imported, module+m) }) {
				found = append(found, p.ImportPath+" imports "+imported)
			}
		}
		for _, dep := range p.Deps {
			if slices.ContainsFunc(r.deny, func(d string) bool { return dep == d || strings.HasPrefix(dep, strings.TrimSuffix(d, "/")+"/") }) {
				found = append(found, p.ImportPath+" depends on "+dep)
			}
		}
	}
	return append(found, crossDependencies(p)...)
}

// timeless are packages that get the time as an argument.
var timeless = []string{"promql", "normalize", "score", "gate", "clustermap", "hubstate", "round"}

// clockReads returns the files of a timeless package that read the clock.
func clockReads(t *testing.T, p listedPackage) []string {
	name, ok := strings.CutPrefix(p.ImportPath, module+"operator/internal/")
	if !ok || !slices.Contains(timeless, name) {
		return nil
	}
	var found []string
	for _, file := range p.GoFiles {
		source, err := os.ReadFile(filepath.Join(p.Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "time.Now") || strings.Contains(string(source), "time.Since") {
			found = append(found, p.ImportPath+"/"+file+" reads the clock")
		}
	}
	return found
}

// crossDependencies returns dependencies between exporter and operator. Metric names are
// their only contract.
func crossDependencies(p listedPackage) []string {
	other := map[bool]string{true: module + "operator/", false: module + "exporter/"}[strings.HasPrefix(p.ImportPath, module+"exporter/")]
	if !strings.HasPrefix(p.ImportPath, module+"exporter/") && !strings.HasPrefix(p.ImportPath, module+"operator/") {
		return nil
	}
	var found []string
	for _, dep := range p.Deps {
		if strings.HasPrefix(dep, other) {
			found = append(found, p.ImportPath+" depends on "+dep)
		}
	}
	return found
}

// readSources reads every source file, so that go test invalidates its cached result when
// a file changes. It does not see the files that go list reads.
func readSources(t *testing.T) {
	t.Helper()
	for _, dir := range []string{".", "../exporter"} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			_, err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestImportsFollowTheTable(t *testing.T) {
	readSources(t)
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./operator/...", "./exporter/...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, v := range append(violations(p), clockReads(t, p)...) {
			t.Error(v)
		}
		for _, r := range table {
			seen[r.pkg] = seen[r.pkg] || r.covers(p.ImportPath)
		}
	}
	for _, r := range table {
		if !seen[r.pkg] && !strings.HasSuffix(r.pkg, "/") {
			t.Errorf("%s is in the table, but does not exist", r.pkg)
		}
	}
}

// TestEveryRowDetectsViolations checks that each row reports a package that violates the row.
func TestEveryRowDetectsViolations(t *testing.T) {
	for _, r := range table {
		name := module + strings.TrimSuffix(r.pkg, "/")
		if strings.HasSuffix(r.pkg, "/") {
			name += "/x"
		}
		if v := violations(listedPackage{ImportPath: name, Imports: []string{module + "operator/internal/controller/other"}}); len(v) == 0 {
			t.Errorf("%s may import a controller", r.pkg)
		}
		for _, d := range r.deny {
			if v := violations(listedPackage{ImportPath: name, Deps: []string{d}}); len(v) == 0 {
				t.Errorf("%s may depend on %s", r.pkg, d)
			}
		}
	}
	for from, to := range map[string]string{"exporter/cmd/x": "operator/internal/promql", "operator/internal/x": "exporter/internal/device"} {
		if v := violations(listedPackage{ImportPath: module + from, Deps: []string{module + to}}); len(v) == 0 {
			t.Errorf("%s may depend on %s", from, to)
		}
	}
}
