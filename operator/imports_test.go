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

// listed is what go list says of a package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// row is one line of the table in the architecture. Entries that end in "/" stand
// for everything below; paths are within the module unless marked with "!", and
// then name packages of others.
type row struct {
	pkg  string
	may  []string // our packages that it may import
	deny []string // packages of others that it must not depend on, even indirectly
}

// impure is what must not be reachable from a package that only decides.
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
	{pkg: "operator/internal/round", may: []string{
		"operator/api/v1alpha1", "operator/internal/clustermap", "operator/internal/promql", "operator/internal/query", "operator/internal/score",
	}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/dial", may: []string{"operator/api/v1alpha1", "operator/internal/query"}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/publish", may: []string{"operator/internal/score"}},
	{pkg: "operator/internal/controller/", may: []string{
		"operator/api/v1alpha1", "operator/internal/promql", "operator/internal/normalize", "operator/internal/score",
		"operator/internal/gate", "operator/internal/query", "operator/internal/round", "operator/internal/publish", "operator/internal/dial",
		"operator/internal/clustermap", "operator/internal/hubstate",
	}},
	{pkg: "operator/internal/cli/", may: []string{
		"operator/api/v1alpha1", "operator/internal/promql", "operator/internal/query", "operator/internal/round",
		"operator/internal/score", "operator/internal/gate", "operator/internal/dial", "operator/internal/cli/",
		"operator/internal/clustermap", "operator/internal/hubstate",
	}},
	{pkg: "exporter/internal/collector", may: []string{"exporter/internal/device", "exporter/internal/podmap"}},
}

func (r row) covers(path string) bool { return within(path, module+r.pkg) }

// within says whether path is the package named, or below it when that ends in "/".
func within(path, name string) bool {
	return path == strings.TrimSuffix(name, "/") || strings.HasSuffix(name, "/") && strings.HasPrefix(path, name)
}

// violations of the table by one package.
func violations(p listed) []string {
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
	return append(found, apart(p)...)
}

// timeless are the packages that take the time as an argument.
var timeless = []string{"promql", "normalize", "score", "gate", "clustermap", "hubstate", "round"}

// clocks are the places where a package that must not look at the clock does.
func clocks(t *testing.T, p listed) []string {
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
			found = append(found, p.ImportPath+"/"+file+" looks at the clock")
		}
	}
	return found
}

// apart keeps exporter and operator from sharing packages: metric names are their
// only contract.
func apart(p listed) []string {
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

// touch reads every source file, so that go test notices when a cached result has
// been overtaken: what go list reads it does not see.
func touch(t *testing.T) {
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

func TestImportsKeepToTheTable(t *testing.T) {
	touch(t)
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./operator/...", "./exporter/...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, v := range append(violations(p), clocks(t, p)...) {
			t.Error(v)
		}
		for _, r := range table {
			seen[r.pkg] = seen[r.pkg] || r.covers(p.ImportPath)
		}
	}
	for _, r := range table {
		if !seen[r.pkg] && !strings.HasSuffix(r.pkg, "/") {
			t.Errorf("%s is in the table and not in the tree", r.pkg)
		}
	}
}

// Every row must bite: a package that breaks it is named.
func TestEveryRowFailsWhenBroken(t *testing.T) {
	for _, r := range table {
		name := module + strings.TrimSuffix(r.pkg, "/")
		if strings.HasSuffix(r.pkg, "/") {
			name += "/x"
		}
		if v := violations(listed{ImportPath: name, Imports: []string{module + "operator/internal/controller/other"}}); len(v) == 0 {
			t.Errorf("%s may import a controller", r.pkg)
		}
		for _, d := range r.deny {
			if v := violations(listed{ImportPath: name, Deps: []string{d}}); len(v) == 0 {
				t.Errorf("%s may depend on %s", r.pkg, d)
			}
		}
	}
	for from, to := range map[string]string{"exporter/cmd/x": "operator/internal/promql", "operator/internal/x": "exporter/internal/device"} {
		if v := violations(listed{ImportPath: module + from, Deps: []string{module + to}}); len(v) == 0 {
			t.Errorf("%s may depend on %s", from, to)
		}
	}
}
