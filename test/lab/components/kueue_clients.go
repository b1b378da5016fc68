package components

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	kueueModule = "sigs.k8s.io/kueue"
	// clientFile creates the configuration of MultiKueue's clients of workers, without a rate.
	clientFile    = "pkg/controller/admissionchecks/multikueue/multikueuecluster.go"
	defaultClient = "return clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig)"
	fasterClient  = `config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig)
	if err == nil {
		config.QPS, config.Burst = %d, %d
	}
	return config, err`
)

// BuildKueueWithClientQPS adds the path of a Kueue whose MultiKueue sends up to qps requests per
// second and kind to a worker. Kueue 0.19 sends 5, and has no setting for it. The module is copied to
// the cache and changed there: the build replaces it.
func (b Binaries) BuildKueueWithClientQPS(ctx context.Context, root string, out io.Writer, qps int) error {
	f := families[0]
	key, err := f.key(root)
	if err != nil {
		return err
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, fmt.Sprintf("%s-clients-%d", key, qps))
	b.paths["kueue"] = filepath.Join(dir, "kueue")
	lock, err := lockCache(ctx, cache, out)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if _, err := os.Stat(b.paths["kueue"]); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	building := filepath.Join(dir, "building")
	if err := os.RemoveAll(building); err != nil {
		return err
	}
	if err := f.writeFasterKueue(ctx, root, building, qps); err != nil {
		return fmt.Errorf("change Kueue's clients of workers: %w", err)
	}
	start := time.Now()
	args := []string{"build", "-v", "-modfile", filepath.Join(building, "go.mod"), "-tags", f.tags, "-ldflags", "-s -w " + f.ldflags,
		"-o", filepath.Join(building, "kueue"), kueueModule + "/cmd/kueue"}
	if _, err := goBuild(ctx, f.dir(root), "kueue with faster clients", args, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "lab: built Kueue with %d requests per second to workers in %s\n", qps, time.Since(start).Round(time.Second))
	if err := os.Rename(filepath.Join(building, "kueue"), b.paths["kueue"]); err != nil {
		return err
	}
	return os.RemoveAll(building)
}

// writeFasterKueue writes the changed module to dir/module, and a go.mod that replaces Kueue with it.
func (f family) writeFasterKueue(ctx context.Context, root, dir string, qps int) error {
	source, err := SourceDir(ctx, root, f.name, kueueModule)
	if err != nil {
		return err
	}
	module := filepath.Join(dir, "module")
	for _, part := range []string{"apis", "client-go", "cmd/kueue", "internal", "pkg"} {
		if err := os.CopyFS(filepath.Join(module, part), os.DirFS(filepath.Join(source, part))); err != nil {
			return err
		}
	}
	original, err := os.ReadFile(filepath.Join(source, clientFile))
	if err != nil {
		return err
	}
	if n := strings.Count(string(original), defaultClient); n != 1 {
		return fmt.Errorf("%s of this version has %q %d times instead of once", clientFile, defaultClient, n)
	}
	changed := strings.Replace(string(original), defaultClient, fmt.Sprintf(fasterClient, qps, 2*qps), 1)
	mod, err := os.ReadFile(filepath.Join(f.dir(root), "go.mod"))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(f.dir(root), "go.sum"))
	if err != nil {
		return err
	}
	kueueMod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(module, clientFile), []byte(changed), 0o644),
		os.WriteFile(filepath.Join(module, "go.mod"), kueueMod, 0o644),
		os.WriteFile(filepath.Join(dir, "go.mod"), fmt.Appendf(mod, "\nreplace %s => %s\n", kueueModule, module), 0o644),
		os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644),
	)
}
