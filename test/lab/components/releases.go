package components

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// binariesVariable names a folder with programs that the lab uses instead of its own.
const binariesVariable = "PLIMSOLL_LAB_BIN"

// release describes how a program of an upstream release reports its version.
type release struct {
	version string
	args    []string
	module  string // in which the version is pinned
}

// upstream contains the programs that need no change for the lab. Kueue and OCM's
// placement controller are built differently.
var upstream = map[string]release{
	"etcd":                    {"3.6.8", []string{"--version"}, "go.etcd.io/etcd/server/v3"},
	"kube-apiserver":          {kubernetesVersion, []string{"--version"}, "k8s.io/kubernetes"},
	"kube-controller-manager": {kubernetesVersion, []string{"--version"}, "k8s.io/kubernetes"},
	"kube-scheduler":          {kubernetesVersion, []string{"--version"}, "k8s.io/kubernetes"},
	"kubectl":                 {kubernetesVersion, []string{"version", "--client"}, "k8s.io/kubernetes"},
	"kwok":                    {"v0.8.0", []string{"--version"}, "sigs.k8s.io/kwok"},
	"kube-state-metrics":      {"v2.20.0", []string{"version"}, "k8s.io/kube-state-metrics/v2"},
	"prometheus":              {"3.14.0", []string{"--version"}, "github.com/prometheus/prometheus"},
	"promtool":                {"3.14.0", []string{"--version"}, "github.com/prometheus/prometheus"},
	"thanos":                  {"0.42.0", []string{"--version"}, "github.com/thanos-io/thanos"},
}

// versionTimeout is the time that a program has to print its version. A wrapper in PATH may
// wait for input or download something.
const versionTimeout = 5 * time.Second

// releases contains the developer's programs of the pinned versions.
type releases struct {
	named    map[string]string // in the folder of binariesVariable, by name
	fallback map[string]string // in $KUBEBUILDER_ASSETS and $PATH
}

// choose returns the path of a program: the folder that the developer named comes first,
// then the cache, then the other folders.
func (r releases) choose(name, cached string, isCached bool) string {
	if path := r.named[name]; path != "" {
		return path
	}
	if path := r.fallback[name]; path != "" && !isCached {
		return path
	}
	return cached
}

// findNamed looks for the programs in the folder that the developer named. It reports to out
// which ones are not taken.
func findNamed(ctx context.Context, out io.Writer, names []string) releases {
	r := releases{named: map[string]string{}, fallback: map[string]string{}}
	if folder := os.Getenv(binariesVariable); folder != "" {
		findIn(ctx, folder, names, r.named, func(err error) { fmt.Fprintln(out, "lab:", err) })
	}
	return r
}

// findFallback looks for programs in the other folders. It runs each candidate to see its
// version, so names are those that are neither named nor cached.
func (r releases) findFallback(ctx context.Context, names []string) {
	ignore := func(error) {}
	if folder := os.Getenv("KUBEBUILDER_ASSETS"); folder != "" {
		findIn(ctx, folder, names, r.fallback, ignore)
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(folder) {
			findIn(ctx, folder, names, r.fallback, ignore)
		}
	}
}

// findIn sets the paths of the programs in a folder that have the right version, unless they
// are set. It calls refuse for each other version.
func findIn(ctx context.Context, folder string, names []string, paths map[string]string, refuse func(error)) {
	folder, err := filepath.Abs(folder) // programs run in folders of their own
	if err != nil {
		refuse(fmt.Errorf("%s is not used: %w", folder, err))
		return
	}
	for _, name := range names {
		path := filepath.Join(folder, name)
		expected, ok := upstream[name]
		if _, err := os.Stat(path); !ok || err != nil || paths[name] != "" {
			continue
		}
		if err := expected.check(ctx, path); err != nil {
			refuse(fmt.Errorf("%s is not taken: %w", path, err))
			continue
		}
		paths[name] = path
	}
}

// check returns an error unless the program reports the release's version.
func (r release) check(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, r.args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("`%s %s` failed: %w", path, strings.Join(r.args, " "), err)
	}
	if !slices.Contains(strings.Fields(string(output)), r.version) {
		first, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
		return errors.New("it reports `" + first + "`, want version " + r.version)
	}
	return nil
}

// reportTaken lists the programs that are not the lab's own.
func (b Binaries) reportTaken(cache string, out io.Writer) {
	byFolder := map[string][]string{}
	for name, path := range b.paths {
		if !strings.HasPrefix(path, cache+string(filepath.Separator)) {
			byFolder[filepath.Dir(path)] = append(byFolder[filepath.Dir(path)], name)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		slices.Sort(byFolder[folder])
		fmt.Fprintf(out, "lab: taken from %s: %s\n", folder, strings.Join(byFolder[folder], ", "))
	}
}
