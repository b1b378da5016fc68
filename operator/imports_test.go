package operator_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "plimsoll.dev/plimsoll/"

// listedPackage is a part of the output of go list -json.
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
	pkg    string
	may    []string // packages of this module that pkg may import
	deny   []string // packages of other modules that pkg must not depend on, even indirectly
	forbid []string // packages that pkg must not import directly
}

// A package without I/O must not depend on clients and must not import requests. The
// Kubernetes API types depend on net/http, so indirect dependencies on requests are allowed.
var (
	clients  = []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}
	requests = []string{"net/http", "net"}
)

var table = []row{
	{pkg: "operator/api/v1alpha1", deny: clients, forbid: requests},
	{pkg: "operator/internal/promql", deny: []string{"k8s.io/"}},
	{pkg: "operator/internal/querylint", may: []string{"operator/internal/promql"}, deny: append([]string{"k8s.io/"}, clients...)},
	{pkg: "operator/internal/normalize", deny: append([]string{"k8s.io/", "net/http"}, clients...), forbid: requests},
	{pkg: "operator/internal/timing", deny: append([]string{"k8s.io/", "net/http"}, clients...), forbid: requests},
	{pkg: "operator/internal/score", may: []string{"operator/api/v1alpha1", "operator/internal/normalize"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/capacity", may: []string{"operator/api/v1alpha1"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/reclaim", may: []string{"operator/api/v1alpha1", "operator/internal/dispatch", "operator/internal/kueuestate", "operator/internal/shape", "operator/internal/timing"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/rebalance", may: []string{"operator/api/v1alpha1", "operator/internal/gate", "operator/internal/ledger", "operator/internal/reclaim", "operator/internal/shape", "operator/internal/timing"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/profile", may: []string{"operator/api/v1alpha1"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/trial", may: []string{"operator/api/v1alpha1", "operator/internal/timing"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/shape", may: []string{"operator/api/v1alpha1"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/order", deny: append([]string{"k8s.io/", "net/http"}, clients...), forbid: requests},
	{pkg: "operator/internal/ledger", may: []string{"operator/internal/order", "operator/internal/shape", "operator/internal/timing"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/dispatch", may: []string{"operator/api/v1alpha1", "operator/internal/timing"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/kueuestate", may: []string{"operator/api/v1alpha1", "operator/internal/timing"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/gate", may: []string{
		"operator/api/v1alpha1", "operator/internal/dispatch", "operator/internal/kueuestate", "operator/internal/ledger",
		"operator/internal/order", "operator/internal/shape", "operator/internal/timing",
	}, deny: clients, forbid: requests},
	{pkg: "operator/internal/format", deny: clients, forbid: requests},
	{pkg: "operator/internal/explain", may: []string{
		"operator/internal/dispatch", "operator/internal/format", "operator/internal/gate", "operator/internal/ledger", "operator/internal/shape",
	}, deny: clients, forbid: requests},
	{pkg: "operator/internal/membership", may: []string{"operator/internal/gate"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/registry", may: []string{
		"operator/api/v1alpha1", "operator/internal/gate", "operator/internal/timing",
	}, deny: clients, forbid: requests},
	{pkg: "operator/internal/query", deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/clustermap", may: []string{"operator/api/v1alpha1", "operator/internal/query"}, deny: clients, forbid: requests},
	{pkg: "operator/internal/fairqueue", forbid: requests},
	{pkg: "operator/internal/querycache", may: []string{
		"operator/api/v1alpha1", "operator/internal/clustermap", "operator/internal/fairqueue", "operator/internal/gate", "operator/internal/hubstate", "operator/internal/ledger", "operator/internal/promql",
		"operator/internal/query", "operator/internal/registry", "operator/internal/shape", "operator/internal/timing",
	}, forbid: requests},
	{pkg: "operator/internal/waitqueue", may: []string{
		"operator/internal/ledger", "operator/internal/order", "operator/internal/querycache", "operator/internal/registry",
		"operator/internal/shape", "operator/internal/timing",
	}, forbid: requests},
	{pkg: "operator/internal/hubstate", may: []string{"operator/api/v1alpha1", "operator/internal/query"}, forbid: requests},
	{pkg: "operator/internal/logging", forbid: requests},
	{pkg: "operator/internal/condition", deny: clients, forbid: requests},
	{pkg: "operator/internal/round", may: []string{
		"operator/api/v1alpha1", "operator/internal/clustermap", "operator/internal/promql", "operator/internal/query", "operator/internal/score",
		"operator/internal/timing",
	}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/jobusage", may: []string{
		"operator/api/v1alpha1", "operator/internal/clustermap", "operator/internal/profile", "operator/internal/promql", "operator/internal/query",
	}, forbid: requests},
	{pkg: "operator/internal/dial", may: []string{"operator/api/v1alpha1", "operator/internal/query"}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/publish", may: []string{"operator/api/v1alpha1", "operator/internal/score"}},
	{pkg: "operator/internal/promengine", may: []string{"operator/internal/query"}, deny: []string{"sigs.k8s.io/controller-runtime"}},
	{pkg: "operator/internal/controller/", may: []string{
		"operator/api/v1alpha1", "operator/internal/capacity", "operator/internal/clustermap", "operator/internal/condition", "operator/internal/dial",
		"operator/internal/dispatch", "operator/internal/fairqueue", "operator/internal/gate", "operator/internal/hubstate", "operator/internal/jobusage", "operator/internal/kueuestate",
		"operator/internal/ledger", "operator/internal/logging", "operator/internal/membership", "operator/internal/order", "operator/internal/profile", "operator/internal/promql", "operator/internal/publish",
		"operator/internal/query", "operator/internal/querycache", "operator/internal/registry", "operator/internal/round",
		"operator/internal/rebalance", "operator/internal/reclaim", "operator/internal/score", "operator/internal/shape", "operator/internal/timing", "operator/internal/trial", "operator/internal/waitqueue",
	}},
	{pkg: "operator/internal/operator/", may: []string{
		"operator/api/v1alpha1", "operator/internal/controller/admissioncheck", "operator/internal/controller/capacitypolicy", "operator/internal/controller/jobprofile", "operator/internal/controller/metricssource", "operator/internal/controller/placementgate", "operator/internal/controller/reclaimpolicy", "operator/internal/controller/scoringpolicy", "operator/internal/controller/trial", "operator/internal/controller/workload",
		"operator/internal/kueuestate", "operator/internal/ledger", "operator/internal/profile", "operator/internal/query", "operator/internal/registry",
	}},
	{pkg: "operator/internal/world/", may: []string{
		"operator/api/v1alpha1", "operator/internal/controller/workload", "operator/internal/kueuestate", "operator/internal/operator",
		"operator/internal/promengine", "operator/internal/promql", "operator/internal/query", "operator/internal/world/", "test/story",
	}},
	{pkg: "operator/internal/cli/", may: []string{
		"operator/api/v1alpha1", "operator/internal/capacity", "operator/internal/clustermap", "operator/internal/dial", "operator/internal/dispatch",
		"operator/internal/explain", "operator/internal/format", "operator/internal/gate", "operator/internal/hubstate", "operator/internal/kueuestate",
		"operator/internal/ledger", "operator/internal/profile", "operator/internal/promengine", "operator/internal/promql", "operator/internal/query", "operator/internal/querylint", "operator/internal/reclaim", "operator/internal/round",
		"operator/internal/score", "operator/internal/shape", "config/crd",
	}},
	{pkg: "operator/embedded", may: []string{
		"operator/api/v1alpha1", "operator/internal/clustermap", "operator/internal/explain", "operator/internal/format", "operator/internal/gate", "operator/internal/ledger",
		"operator/internal/promengine", "operator/internal/query", "operator/internal/querycache", "operator/internal/registry",
		"operator/internal/round", "operator/internal/score", "operator/internal/shape", "config/crd",
	}},
	{pkg: "exporter/internal/collector", may: []string{"exporter/internal/device", "exporter/internal/podmap"}},
}

func (r row) covers(importPath string) bool { return within(importPath, module+r.pkg) }

// within reports whether importPath is the named package or, if name ends in "/", below it.
func within(importPath, name string) bool {
	return importPath == strings.TrimSuffix(name, "/") || strings.HasSuffix(name, "/") && strings.HasPrefix(importPath, name)
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
			if slices.Contains(r.forbid, imported) {
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
var timeless = []string{
	"promql", "normalize", "score", "capacity", "profile", "reclaim", "rebalance", "gate", "format", "explain", "clustermap", "hubstate", "round",
	"ledger", "shape", "dispatch", "membership", "kueuestate", "timing", "registry", "order", "trial", "jobusage",
}

// clockRead matches the functions of package time with access to the clock.
var clockRead = regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Tick|Sleep|NewTimer|NewTicker)\b`)

// clockReads returns the files of a timeless package that read the clock.
func clockReads(t *testing.T, p listedPackage) []string {
	t.Helper()
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
		if clockRead.Match(source) {
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
// a file changes. The test cache does not track the files that go list reads.
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

// listPackages returns all packages of operator and exporter, without their tests.
func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	readSources(t)
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./operator/...", "./exporter/...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImportsFollowTheTable(t *testing.T) {
	found := map[string]bool{}
	for _, p := range listPackages(t) {
		for _, v := range append(violations(p), clockReads(t, p)...) {
			t.Error(v)
		}
		isListed := false
		for _, r := range table {
			if r.covers(p.ImportPath) {
				found[r.pkg], isListed = true, true
			}
		}
		if !isListed && strings.HasPrefix(p.ImportPath, module+"operator/internal/") {
			t.Errorf("%s has no row in the table", p.ImportPath)
		}
	}
	for _, r := range table {
		if !found[r.pkg] {
			t.Errorf("%s is in the table, but does not exist", r.pkg)
		}
	}
	for _, name := range timeless {
		if !found["operator/internal/"+name] {
			t.Errorf("%s is in the list of packages that do not read the clock, but does not exist", name)
		}
	}
}

// TestEveryRowDetectsViolations checks that each row reports a package that violates the row.
func TestEveryRowDetectsViolations(t *testing.T) {
	for _, r := range table {
		t.Run(r.pkg, func(t *testing.T) {
			name := module + strings.TrimSuffix(r.pkg, "/")
			if strings.HasSuffix(r.pkg, "/") {
				name += "/x"
			}
			if v := violations(listedPackage{ImportPath: name, Imports: []string{module + "operator/internal/controller/other"}}); len(v) == 0 {
				t.Error("may import a controller")
			}
			for _, d := range r.deny {
				if v := violations(listedPackage{ImportPath: name, Deps: []string{d}}); len(v) == 0 {
					t.Errorf("may depend on %s", d)
				}
			}
			for _, f := range r.forbid {
				if v := violations(listedPackage{ImportPath: name, Imports: []string{f}}); len(v) == 0 {
					t.Errorf("may import %s", f)
				}
			}
			for _, m := range r.may {
				if v := violations(listedPackage{ImportPath: name, Imports: []string{module + m}}); len(v) > 0 {
					t.Errorf("must be able to import %s: %v", m, v)
				}
			}
		})
	}
}

func TestExporterAndOperatorAreIndependent(t *testing.T) {
	for from, to := range map[string]string{"exporter/cmd/x": "operator/internal/promql", "operator/internal/x": "exporter/internal/device"} {
		t.Run(from, func(t *testing.T) {
			if v := violations(listedPackage{ImportPath: module + from, Deps: []string{module + to}}); len(v) == 0 {
				t.Errorf("may depend on %s", to)
			}
		})
	}
}

// TestEveryTimelessPackageDetectsClockReads checks that each timeless package reports a read
// of the clock.
func TestEveryTimelessPackageDetectsClockReads(t *testing.T) {
	for _, name := range timeless {
		t.Run(name, func(t *testing.T) {
			for _, use := range []string{"time.Now()", "time.Since(at)", "time.NewTimer(time.Second)"} {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte("package x\n\nvar x = "+use+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				p := listedPackage{ImportPath: module + "operator/internal/" + name, Dir: dir, GoFiles: []string{"x.go"}}
				if len(clockReads(t, p)) != 1 {
					t.Errorf("may use %s", use)
				}
			}
		})
	}
}

// TestArchitectureShowsTheTable compares the imports in the architecture document with the
// table. The document uses the last elements of the paths.
func TestArchitectureShowsTheTable(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if cells := strings.Split(line, " | "); len(cells) == 4 && strings.HasPrefix(line, "| `") {
			documented[strings.Trim(cells[0], "| `")] = cells[2]
		}
	}
	for _, r := range table {
		t.Run(r.pkg, func(t *testing.T) {
			var names []string
			for _, m := range r.may {
				if m == "operator/api/v1alpha1" {
					m = "api"
				}
				names = append(names, path.Base(m))
			}
			want := strings.Join(names, ", ")
			switch r.pkg {
			case "operator/internal/controller/":
				want = "all of the above"
			case "operator/internal/cli/":
			default:
				if want == "" {
					want = "–"
				}
			}
			if got := documented[strings.TrimSuffix(r.pkg, "/")]; got != want {
				t.Errorf("the document says %q, want %q", got, want)
			}
		})
	}
}
