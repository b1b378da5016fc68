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
	"kube-state-metrics":      {"v2.19.1", []string{"version"}, "k8s.io/kube-state-metrics/v2"},
	"prometheus":              {"3.15.0", []string{"--version"}, "github.com/prometheus/prometheus"},
	"promtool":                {"3.15.0", []string{"--version"}, "github.com/prometheus/prometheus"},
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

// findReleases looks for the named programs in the developer's folders and checks their
// versions. It reports to out which ones are taken, and which ones of a folder that the
// developer named are not.
func findReleases(ctx context.Context, out io.Writer, names []string) releases {
	r := releases{named: map[string]string{}, fallback: map[string]string{}}
	find := func(into map[string]string, folder string, report bool) {
		folder, err := filepath.Abs(folder) // programs run in folders of their own
		if err != nil {
			fmt.Fprintf(out, "lab: %s is not used: %v\n", folder, err)
			return
		}
		for _, name := range names {
			path := filepath.Join(folder, name)
			expected, ok := upstream[name]
			if _, err := os.Stat(path); !ok || err != nil || into[name] != "" {
				continue
			}
			switch err := expected.check(ctx, path); {
			case err == nil:
				into[name] = path
			case report:
				fmt.Fprintf(out, "lab: %s is not taken: %v\n", path, err)
			}
		}
	}
	if folder := os.Getenv(binariesVariable); folder != "" {
		find(r.named, folder, true)
	}
	if folder := os.Getenv("KUBEBUILDER_ASSETS"); folder != "" {
		find(r.fallback, folder, false)
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(folder) {
			find(r.fallback, folder, false)
		}
	}
	return r
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
