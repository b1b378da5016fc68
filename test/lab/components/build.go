// Package components builds the programs of the lab from pinned Go modules and caches them.
package components

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Binaries knows the paths of programs.
type Binaries struct {
	paths map[string]string // by name
}

// Path returns the path of a program, such as kube-apiserver, or "" if it was not among
// the names of Build.
func (b Binaries) Path(name string) string { return b.paths[name] }

// OfFleet returns the names of the programs that every fleet runs.
func OfFleet() []string {
	return namesOf(func(p program) bool { return !p.onDemand })
}

// All returns the names of all programs.
func All() []string { return namesOf(func(program) bool { return true }) }

func namesOf(selected func(program) bool) []string {
	var names []string
	for _, f := range families {
		for _, p := range f.programs {
			if selected(p) {
				names = append(names, p.names()...)
			}
		}
	}
	return names
}

// Build returns the named programs. It takes those of the developer's folder that have the
// pinned version, then those in the cache, then those in $KUBEBUILDER_ASSETS and $PATH, and
// builds the others. It writes its progress to out.
// The cache is $XDG_CACHE_HOME/plimsoll/lab; its key covers the pinned versions and the
// build flags.
func Build(ctx context.Context, root string, out io.Writer, names ...string) (Binaries, error) {
	for _, name := range names {
		if !slices.Contains(All(), name) {
			return Binaries{}, fmt.Errorf("the lab has no program %q; it has %s", name, strings.Join(All(), ", "))
		}
	}
	cache, err := cacheDir()
	if err != nil {
		return Binaries{}, err
	}
	found := findNamed(ctx, out, names)
	missing, err := Binaries{paths: map[string]string{}}.lookup(root, cache, names, found)
	if err != nil {
		return Binaries{}, err
	}
	found.findFallback(ctx, programNames(missing, names))
	b, err := build(ctx, root, cache, found, out, names...)
	if err == nil {
		b.reportTaken(cache, out)
	}
	return b, err
}

// programNames returns those of the names that are programs of the families.
func programNames(all []family, names []string) []string {
	var found []string
	for _, f := range all {
		for _, p := range f.programs {
			for _, name := range p.names() {
				if slices.Contains(names, name) {
					found = append(found, name)
				}
			}
		}
	}
	return found
}

// build builds the programs that are in neither found nor the cache.
func build(ctx context.Context, root, cache string, found releases, out io.Writer, names ...string) (Binaries, error) {
	b := Binaries{paths: map[string]string{}}
	missing, err := b.lookup(root, cache, names, found)
	if err != nil || len(missing) == 0 {
		return b, err
	}
	if _, err := exec.LookPath("go"); err != nil {
		return b, errors.New("the lab builds its components with Go, but `go` is not in $PATH: install Go 1.26 or newer from https://go.dev/dl")
	}
	lock, err := lockCache(ctx, cache, out)
	if err != nil {
		return b, err
	}
	defer func() { _ = lock.Close() }()
	// Another process may have built them in the meantime.
	if missing, err = b.lookup(root, cache, names, found); err != nil || len(missing) == 0 {
		return b, err
	}
	return b, buildAll(ctx, root, cache, missing, out)
}

// cacheDir returns the folder of the built programs.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache folder (set XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(dir, "plimsoll", "lab"), nil
}

// lookup sets the paths of the programs and returns those that are in neither found nor
// the cache, by family.
func (b Binaries) lookup(root, cache string, names []string, found releases) ([]family, error) {
	var missing []family
	for _, f := range families {
		key, err := f.key(root)
		if err != nil {
			return nil, err
		}
		absent := f
		absent.programs = nil
		for _, p := range f.programs {
			isMissing := false
			for _, name := range p.names() {
				if !slices.Contains(names, name) {
					continue
				}
				cached := filepath.Join(cache, key, name)
				_, err := os.Stat(cached)
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					return nil, fmt.Errorf("look up the cached %s: %w", name, err)
				}
				path := found.choose(name, cached, err == nil)
				b.paths[name] = path
				isMissing = isMissing || path == cached && err != nil
			}
			if isMissing {
				absent.programs = append(absent.programs, p)
			}
		}
		if len(absent.programs) > 0 {
			missing = append(missing, absent)
		}
	}
	return missing, nil
}

// buildAll builds families one after another: a build uses all processors, and a later
// family finds packages that an earlier one has compiled.
func buildAll(ctx context.Context, root, cache string, missing []family, out io.Writer) error {
	var names []string
	var cpu time.Duration
	for _, f := range missing {
		for _, p := range f.programs {
			names = append(names, p.name)
		}
		cpu += f.cpu
	}
	cores := runtime.NumCPU()
	fmt.Fprintf(out, "lab: building %s: up to %s on %d idle cores; the programs are cached in %s\n",
		strings.Join(names, ", "), (cpu / time.Duration(cores)).Round(time.Minute), cores, cache)
	start := time.Now()
	var used time.Duration
	for _, f := range missing {
		cpu, err := f.build(ctx, root, cache, out)
		if err != nil {
			return err
		}
		used += cpu
	}
	fmt.Fprintf(out, "lab: components built in %s with %s of processor time; %s\n",
		time.Since(start).Round(time.Second), used.Round(time.Second), describeBuildCache(ctx))
	return nil
}

// build builds the family's programs and moves them to the cache.
func (f family) build(ctx context.Context, root, cache string, out io.Writer) (cpu time.Duration, err error) {
	key, err := f.key(root)
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(cache, key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	building := filepath.Join(dir, "building")
	args := []string{"build", "-v", "-mod=readonly", "-ldflags", "-s -w " + f.ldflags, "-o", building + "/"}
	if f.tags != "" {
		args = append(args, "-tags", f.tags)
	}
	for _, p := range f.programs {
		args = append(args, p.pkg)
	}
	if err := errors.Join(os.RemoveAll(building), os.Mkdir(building, 0o755)); err != nil {
		return 0, err
	}
	start := time.Now()
	if cpu, err = goBuild(ctx, f.dir(root), f.name, args, out); err != nil {
		return cpu, err
	}
	for _, p := range f.programs {
		if err := p.keep(building, dir); err != nil {
			return cpu, fmt.Errorf("keep %s in the cache: %w", p.name, err)
		}
	}
	fmt.Fprintf(out, "lab: built %s in %s\n", f.name, time.Since(start).Round(time.Second))
	return cpu, os.RemoveAll(building)
}

// keep moves the program from the folder building to dir. A rename is atomic, so a
// program in dir is complete.
func (p program) keep(building, dir string) error {
	if err := os.Rename(filepath.Join(building, p.name), filepath.Join(dir, p.name)); err != nil {
		return err
	}
	for _, link := range p.links {
		if err := os.Symlink(p.name, filepath.Join(dir, link)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}
