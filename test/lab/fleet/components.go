package fleet

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// family is a set of components with a common go.mod. One go build makes them all.
type family struct {
	name    string            // folder below test/lab/components
	targets map[string]string // package -> name of its binary
	links   map[string]string // symbolic link -> binary
	tags    string
	ldflags string
	// buildTime is the time of a build without caches, measured on two cores.
	buildTime time.Duration
}

const kubernetesVersion = "v1.36.3"

var families = []family{
	{
		name: "kube",
		targets: map[string]string{
			".":                           "kube",
			"sigs.k8s.io/kueue/cmd/kueue": "kueue",
			"sigs.k8s.io/kwok/cmd/kwok":   "kwok",
		},
		links: map[string]string{
			"etcd": "kube", "kube-apiserver": "kube", "kube-controller-manager": "kube",
			"kube-scheduler": "kube", "kubectl": "kube",
		},
		ldflags: "-X k8s.io/component-base/version.gitVersion=" + kubernetesVersion +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" +
			" -X sigs.k8s.io/kueue/pkg/visibility.certDir=visibility",
		buildTime: 6 * time.Minute,
	},
	{
		// It does not compile with client-go 0.36, so it has its own go.mod.
		name:      "kube-state-metrics",
		targets:   map[string]string{"k8s.io/kube-state-metrics/v2": "kube-state-metrics"},
		buildTime: 90 * time.Second,
	},
	{
		name: "prometheus",
		targets: map[string]string{
			"github.com/prometheus/prometheus/cmd/prometheus": "prometheus",
			"github.com/prometheus/prometheus/cmd/promtool":   "promtool",
		},
		tags:      "remove_all_sd,enable_kubernetes_sd",
		buildTime: 3 * time.Minute,
	},
	{
		name:    "thanos",
		targets: map[string]string{"github.com/thanos-io/thanos/cmd/thanos": "thanos"},
		// Without this tag the sidecar's gRPC server panics.
		tags:      "slicelabels",
		buildTime: 3 * time.Minute,
	},
	{
		name:      "ocm",
		targets:   map[string]string{"open-cluster-management.io/ocm/cmd/placement": "placement"},
		buildTime: 3 * time.Minute,
	},
}

// Binaries knows the folders of the built programs.
type Binaries struct {
	dirs map[string]string // name of a program -> folder
}

// Path returns the path of a program, such as kube-apiserver.
func (b Binaries) Path(name string) string { return filepath.Join(b.dirs[name], name) }

// Build builds all components that are not cached, two families at a time, and
// writes its progress to out. The cache is $XDG_CACHE_HOME/plimsoll/lab; its key
// covers the pinned versions, the build flags and the Go version.
func Build(ctx context.Context, root string, out io.Writer) (Binaries, error) {
	b := Binaries{dirs: map[string]string{}}
	cache, err := os.UserCacheDir()
	if err != nil {
		return b, fmt.Errorf("find a cache folder (set XDG_CACHE_HOME): %w", err)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return b, errors.New("the lab builds its components with Go, but `go` is not in $PATH: install Go 1.26 or newer from https://go.dev/dl")
	}
	start := time.Now()
	var missing []family
	for _, f := range families {
		key, err := f.key(root)
		if err != nil {
			return b, err
		}
		dir := filepath.Join(cache, "plimsoll", "lab", f.name+"-"+key)
		for _, name := range f.names() {
			b.dirs[name] = dir
		}
		switch _, err := os.Stat(filepath.Join(dir, ".complete")); {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, f)
		case err != nil:
			return b, fmt.Errorf("look up the cached build of %s: %w", f.name, err)
		}
	}
	if len(missing) > 0 {
		names := make([]string, len(missing))
		var total time.Duration
		for i, f := range missing {
			names[i], total = f.name, total+f.buildTime
		}
		fmt.Fprintf(out, "lab: building %s (about %s on two idle cores without caches); the binaries are cached in %s\n",
			strings.Join(names, ", "), total, filepath.Join(cache, "plimsoll", "lab"))
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for _, f := range missing {
		g.Go(func() error { return f.build(gctx, root, b.dirs[f.names()[0]], out) })
	}
	if err := g.Wait(); err != nil {
		return b, err
	}
	if len(missing) > 0 {
		fmt.Fprintf(out, "lab: components built in %s\n", time.Since(start).Round(time.Second))
	}
	return b, nil
}

// names returns the names of the family's binaries and links.
func (f family) names() []string {
	var names []string
	for _, bin := range f.targets {
		names = append(names, bin)
	}
	for link := range f.links {
		names = append(names, link)
	}
	return names
}

// key returns the cache key of the family's binaries.
func (f family) key(root string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, f.tags, f.ldflags, f.targets, f.links)
	files, err := filepath.Glob(filepath.Join(f.dir(root), "*"))
	if err != nil {
		return "", fmt.Errorf("list the pins of %s: %w", f.name, err)
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%s has no go.mod for %s: use a complete checkout", f.dir(root), f.name)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the pins of %s: %w", f.name, err)
		}
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

func (f family) dir(root string) string {
	return filepath.Join(root, "test", "lab", "components", f.name)
}

func (f family) build(ctx context.Context, root, dir string, out io.Writer) error {
	start := time.Now()
	tmp := dir + ".building"
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755)); err != nil {
		return fmt.Errorf("prepare %s: %w", tmp, err)
	}
	args := []string{"build", "-v", "-trimpath", "-mod=readonly", "-ldflags", "-s -w " + f.ldflags, "-o", tmp + "/"}
	if f.tags != "" {
		args = append(args, "-tags", f.tags)
	}
	for pkg := range f.targets {
		args = append(args, pkg)
	}
	if err := goBuild(ctx, f.dir(root), f.name, "CGO_ENABLED=0", args, out); err != nil {
		return err
	}
	for link, target := range f.links {
		if err := os.Symlink(target, filepath.Join(tmp, link)); err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	if err := os.WriteFile(filepath.Join(tmp, ".complete"), nil, 0o644); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(tmp, dir)); err != nil {
		return fmt.Errorf("keep the binaries of %s: %w", f.name, err)
	}
	fmt.Fprintf(out, "lab: built %s in %s\n", f.name, time.Since(start).Round(time.Second))
	return nil
}

// goBuild runs `go build -v`. Every 15 seconds it reports the number of compiled
// packages to out.
func goBuild(ctx context.Context, dir, what, cgo string, args []string, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), cgo, "CGO_CFLAGS=-O2 -Wno-deprecated-declarations", "GOFLAGS=", "GOWORK=off")
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go build of %s: %w", what, err)
	}
	var compiled atomic.Int64
	var tail outputTail
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			compiled.Add(1)
			tail.add(lines.Text())
		}
	}()
	start, tick := time.Now(), time.NewTicker(15*time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintf(out, "lab: building %-18s %6s  %d packages compiled\n", what, time.Since(start).Round(time.Second), compiled.Load())
			continue
		case <-done:
		}
		break
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go build of %s in %s failed (%w); it needs the Go module proxy and about 2 GiB of disk; its last lines:\n%s",
			what, dir, err, tail.String())
	}
	return nil
}

// buildOwn builds Plimsoll's programs from the repository at root into root/bin.
func (b Binaries) buildOwn(ctx context.Context, root string, out io.Writer) error {
	return errors.Join(
		b.buildProgram(ctx, root, "CGO_ENABLED=0", "plimsoll-operator", "./operator/cmd/plimsoll-operator", out),
		b.buildProgram(ctx, root, "CGO_ENABLED=0", "kubectl-plimsoll", "./operator/cmd/kubectl-plimsoll", out),
		b.buildExporter(ctx, root, out))
}

// buildExporter builds the exporter, which loads NVIDIA's library at run time, through
// cgo.
func (b Binaries) buildExporter(ctx context.Context, root string, out io.Writer) error {
	return b.buildProgram(ctx, root, "CGO_ENABLED=1", "plimsoll-exporter", "./exporter/cmd/plimsoll-exporter", out)
}

func (b Binaries) buildProgram(ctx context.Context, root, cgo, name, pkg string, out io.Writer) error {
	dir := filepath.Join(root, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b.dirs[name] = dir
	return goBuild(ctx, root, name, cgo, []string{"build", "-v", "-o", dir + "/", pkg}, out)
}

// moduleDir returns the folder with the source of a module that a family pins; ""
// is the repository's own go.mod. The lab installs the manifests of that source.
func moduleDir(ctx context.Context, root, familyName, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = root
	if familyName != "" {
		cmd.Dir = family{name: familyName}.dir(root)
	}
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	cmd.Env = append(cmd.Env, "GOFLAGS=")
	output, err := cmd.Output()
	dir := strings.TrimSpace(string(output))
	if err != nil || dir == "" {
		return "", fmt.Errorf("find the source of %s (run `go mod download` in %s): %w", module, cmd.Dir, err)
	}
	return dir, nil
}

// outputTail keeps the last 20 lines of an output.
type outputTail struct {
	mu    sync.Mutex
	lines []string
}

func (r *outputTail) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	if len(r.lines) > 20 {
		r.lines = r.lines[1:]
	}
}

func (r *outputTail) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}
