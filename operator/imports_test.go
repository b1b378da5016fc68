package operator_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
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

// row says what the packages of a wing may import. Paths of this module are relative to its root. A path
// that ends in "/" includes all packages below. Packages of a wing may import each other.
type row struct {
	wing string
	may  []string
}

// wings is the one table of imports between packages of this module. The order is from the bottom up.
var wings = []row{
	{wing: "operator/api/"},
	{wing: "operator/internal/timing"},
	{wing: "operator/internal/format"},
	{wing: "operator/internal/fairqueue"},
	{wing: "operator/internal/metrics/", may: []string{"operator/api/", "operator/internal/format", "rules"}},
	{wing: "operator/internal/hubstate", may: []string{"operator/api/", "operator/internal/metrics/"}},
	{wing: "operator/internal/scoring/", may: []string{"operator/api/", "operator/internal/timing", "operator/internal/metrics/"}},
	{wing: "operator/internal/admission/", may: []string{
		"operator/api/", "operator/internal/timing", "operator/internal/format", "operator/internal/fairqueue", "operator/internal/metrics/", "operator/internal/hubstate",
	}},
	{wing: "operator/internal/policies/", may: []string{
		"operator/api/", "operator/internal/timing", "operator/internal/metrics/", "operator/internal/admission/",
	}},
	{wing: "operator/internal/controller/", may: []string{
		"operator/api/", "operator/internal/timing", "operator/internal/fairqueue", "operator/internal/metrics/", "operator/internal/hubstate",
		"operator/internal/scoring/", "operator/internal/admission/", "operator/internal/policies/",
	}},
	{wing: "operator/internal/whatif", may: []string{
		"operator/api/", "operator/internal/metrics/", "operator/internal/hubstate", "operator/internal/admission/", "operator/internal/controller/",
	}},
	{wing: "operator/internal/operator", may: []string{
		"operator/api/", "operator/internal/metrics/", "operator/internal/admission/", "operator/internal/policies/", "operator/internal/controller/",
	}},
	{wing: "operator/internal/world/", may: []string{
		"operator/api/", "operator/internal/timing", "operator/internal/metrics/", "operator/internal/admission/", "operator/internal/controller/", "operator/internal/operator", "test/story",
	}},
	{wing: "operator/internal/cli/", may: []string{
		"operator/api/", "operator/internal/format", "operator/internal/metrics/", "operator/internal/hubstate", "operator/internal/scoring/",
		"operator/internal/admission/", "operator/internal/policies/", "operator/internal/whatif", "config/crd",
	}},
	{wing: "operator/embedded", may: []string{
		"operator/api/", "operator/internal/format", "operator/internal/metrics/", "operator/internal/scoring/", "operator/internal/admission/", "operator/internal/whatif", "config/crd",
	}},
	{wing: "operator/cmd/", may: []string{"operator/api/", "operator/internal/controller/", "operator/internal/operator", "operator/internal/cli/"}},
}

// pure are the packages below operator/internal without I/O: they do not depend on clients, send no requests, and get
// the time as an argument. Kubernetes API types depend on net/http, so indirect dependencies on it are allowed.
var pure = []string{
	"timing", "format", "metrics/promql", "metrics/querylint", "metrics/clustermap", "scoring/score",
	"admission/shape", "admission/ledger", "admission/dispatch", "admission/kueuestate", "admission/gate", "admission/lifecycle", "admission/engine", "admission/explain", "admission/membership", "admission/gatestate", "admission/shadow",
	"policies/capacity", "policies/reclaim", "policies/rebalance", "policies/profile", "policies/trial",
}

// timeless are further packages that get the time as an argument.
var timeless = []string{"hubstate", "scoring/round", "policies/jobusage"}

var (
	clients  = []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}
	requests = []string{"net/http", "net"}
)

// shared are the packages that the others of their wing may import: no controller imports another, and no command of
// the CLI.
var shared = map[string][]string{
	"operator/internal/controller/": {"condition", "logging"},
	"operator/internal/cli/":        {"command", "hubclient", "prometheus", "manifest", "evaluation", "installation", "ask", "explanation", "fleet"},
}

// mayImport reports whether importer, a package of the wing, may import another package of this module. The package at
// the root of a wing may import all of it.
func (r row) mayImport(importer, importPath string) bool {
	if names := shared[r.wing]; names != nil && r.covers(importPath) && importer != module+strings.TrimSuffix(r.wing, "/") {
		return slices.Contains(names, strings.TrimPrefix(importPath, module+r.wing))
	}
	return r.covers(importPath) || slices.ContainsFunc(r.may, func(m string) bool { return within(importPath, module+m) })
}

func (r row) covers(importPath string) bool { return within(importPath, module+r.wing) }

// within reports whether importPath is the named package or, if name ends in "/", below it.
func within(importPath, name string) bool {
	return importPath == strings.TrimSuffix(name, "/") || strings.HasSuffix(name, "/") && strings.HasPrefix(importPath, name)
}

// violations returns the violations of the tables by one package.
func violations(p listedPackage) []string {
	var found []string
	for _, r := range wings {
		for _, imported := range p.Imports {
			if r.covers(p.ImportPath) && strings.HasPrefix(imported, module) && !r.mayImport(p.ImportPath, imported) {
				found = append(found, p.ImportPath+" imports "+imported)
			}
		}
	}
	if slices.Contains(pure, strings.TrimPrefix(p.ImportPath, module+"operator/internal/")) || within(p.ImportPath, module+"operator/api/") {
		for _, imported := range p.Imports {
			if slices.Contains(requests, imported) {
				found = append(found, p.ImportPath+" imports "+imported)
			}
		}
		for _, dep := range p.Deps {
			if slices.ContainsFunc(clients, func(c string) bool { return within(dep, c+"/") }) {
				found = append(found, p.ImportPath+" depends on "+dep)
			}
		}
	}
	return append(found, crossDependencies(p)...)
}

// clockRead matches the functions of package time with access to the clock.
var clockRead = regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Tick|Sleep|NewTimer|NewTicker)\b`)

// clockReads returns the files of a pure or timeless package that read the clock.
func clockReads(t *testing.T, p listedPackage) []string {
	t.Helper()
	name, ok := strings.CutPrefix(p.ImportPath, module+"operator/internal/")
	if !ok || !slices.Contains(pure, name) && !slices.Contains(timeless, name) {
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
	exists := map[string]bool{}
	for _, p := range listPackages(t) {
		exists[p.ImportPath] = true
		for _, v := range append(violations(p), clockReads(t, p)...) {
			t.Error(v)
		}
		if strings.HasPrefix(p.ImportPath, module+"operator/") && !slices.ContainsFunc(wings, func(r row) bool { return r.covers(p.ImportPath) }) {
			t.Errorf("%s is in no wing of the table", p.ImportPath)
		}
	}
	for _, name := range slices.Concat(pure, timeless) {
		if !exists[module+"operator/internal/"+name] {
			t.Errorf("%s is listed, but does not exist", name)
		}
	}
}

func TestEveryWingDetectsViolations(t *testing.T) {
	for _, r := range wings {
		t.Run(r.wing, func(t *testing.T) {
			name := module + strings.TrimSuffix(r.wing, "/")
			if strings.HasSuffix(r.wing, "/") {
				name += "/x"
			}
			for _, denied := range []string{"operator/embedded", "operator/internal/controller/other"} {
				if r.mayImport(name, module+denied) {
					continue
				}
				if v := violations(listedPackage{ImportPath: name, Imports: []string{module + denied}}); len(v) == 0 {
					t.Errorf("may import %s", denied)
				}
			}
			for _, m := range r.may {
				if v := violations(listedPackage{ImportPath: name, Imports: []string{module + m}}); len(v) > 0 {
					t.Errorf("must be able to import %s: %v", m, v)
				}
			}
		})
	}
	for from, to := range map[string]string{"controller/trial": "controller/workload", "cli/top": "cli/waste", "cli/hubclient": "cli"} {
		if v := violations(listedPackage{ImportPath: module + "operator/internal/" + from, Imports: []string{module + "operator/internal/" + to}}); len(v) == 0 {
			t.Errorf("%s may import %s", from, to)
		}
	}
}

func TestPurePackagesDetectViolations(t *testing.T) {
	for _, name := range pure {
		for _, dep := range clients {
			if v := violations(listedPackage{ImportPath: module + "operator/internal/" + name, Deps: []string{dep + "/x"}}); len(v) == 0 {
				t.Errorf("%s may depend on %s", name, dep)
			}
		}
		for _, imported := range requests {
			if v := violations(listedPackage{ImportPath: module + "operator/internal/" + name, Imports: []string{imported}}); len(v) == 0 {
				t.Errorf("%s may import %s", name, imported)
			}
		}
	}
}

func TestExporterAndOperatorAreIndependent(t *testing.T) {
	for from, to := range map[string]string{"exporter/cmd/x": "operator/internal/metrics/promql", "operator/internal/x": "exporter/internal/device"} {
		t.Run(from, func(t *testing.T) {
			if v := violations(listedPackage{ImportPath: module + from, Deps: []string{module + to}}); len(v) == 0 {
				t.Errorf("may depend on %s", to)
			}
		})
	}
}

func TestTimelessPackagesDetectClockReads(t *testing.T) {
	for _, name := range slices.Concat(pure, timeless) {
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

// TestArchitectureShowsTheTable compares the table in the architecture document with the tables above, and prints the
// right one if it differs.
func TestArchitectureShowsTheTable(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	short := func(p string) string { return strings.TrimPrefix(strings.TrimPrefix(p, "operator/"), "internal/") }
	want := "| wing | may import |\n|---|---|\n"
	for _, r := range wings {
		var may []string
		for _, m := range r.may {
			may = append(may, "`"+short(m)+"`")
		}
		want += "| `" + short(r.wing) + "` | " + cmp.Or(strings.Join(may, ", "), "–") + " |\n"
	}
	want += "\nWithout I/O: `" + strings.Join(pure, "`, `") + "`."
	if !strings.Contains(string(text), want) {
		t.Errorf("docs/architecture.md does not have this table:\n%s", want)
	}
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"operator/internal/")
		if wing, _, _ := strings.Cut(name, "/"); slices.Contains([]string{"controller", "world", "cli"}, wing) || name == p.ImportPath {
			continue
		}
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("docs/architecture.md does not say what %s is", name)
		}
	}
}
