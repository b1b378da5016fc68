// Package chromium runs scripts of node that open pages in a headless Chromium.
package chromium

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Driver runs scripts. Its folder has their files and modules.
type Driver struct {
	Dir string
	// Chromium is the path of the browser.
	Chromium string
}

// Prepare copies the files of a driver to the user's cache, and installs their modules with npm if package.json has changed.
func Prepare(ctx context.Context, name string, files fs.FS, chromium string, npm ...string) (*Driver, error) {
	for _, program := range []string{chromium, "node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("pages are opened with chromium, node and npm: %w", err)
		}
	}
	path, err := exec.LookPath(chromium)
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	d := &Driver{Dir: filepath.Join(cache, "plimsoll", name), Chromium: path}
	changed, err := d.copyFiles(files)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(d.Dir, "installed")); !changed && err == nil {
		return d, nil
	}
	fmt.Println("Installing packages in", d.Dir)
	if err := d.Run(ctx, os.Stdout, "npm", append(npm, "--ignore-scripts", "--no-audit", "--no-fund")...); err != nil {
		return nil, err
	}
	return d, os.WriteFile(filepath.Join(d.Dir, "installed"), nil, 0o644)
}

// copyFiles copies the files and reports whether package.json has changed.
func (d *Driver) copyFiles(files fs.FS) (changed bool, err error) {
	if err := os.MkdirAll(d.Dir, 0o755); err != nil {
		return false, err
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		content, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return false, err
		}
		target := filepath.Join(d.Dir, entry.Name())
		if entry.Name() == "package.json" {
			before, _ := os.ReadFile(target) // a missing file has changed
			changed = !bytes.Equal(before, content)
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return false, err
		}
	}
	return changed, nil
}

// Run runs a program in the driver's folder.
func (d *Driver) Run(ctx context.Context, out io.Writer, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.Dir, out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w", program, args, err)
	}
	return nil
}
