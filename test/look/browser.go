package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed browser
var browserFiles embed.FS

// browser draws pages. Its folder has the files of browser/, their modules and the bundle.
type browser struct{ dir, chromium string }

// shot is a page with its picture and its report.
type shot struct {
	Dashboard string `json:"-"`
	URL       string `json:"url"`
	Width     int    `json:"width"`
	Picture   string `json:"picture"`
	Report    string `json:"report"`
}

// prepareBrowser installs the modules in the user's cache if they have changed, and builds
// the bundle.
func prepareBrowser(ctx context.Context, chromium string) (*browser, error) {
	for _, program := range []string{chromium, "node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("dashboards are drawn with chromium, node and npm: %w", err)
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
	b := &browser{dir: filepath.Join(cache, "plimsoll", "look"), chromium: path}
	changed, err := b.copyFiles()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(b.dir, "installed")); changed || err != nil {
		fmt.Println("Installing Grafana's packages (440 MB) in", b.dir)
		if err := b.command(ctx, "npm", "install", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(b.dir, "installed"), nil, 0o644); err != nil {
			return nil, err
		}
	}
	return b, b.command(ctx, "node", "build.mjs")
}

// copyFiles copies the files of browser/ and reports whether package.json has changed.
func (b *browser) copyFiles() (changed bool, err error) {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return false, err
	}
	entries, err := browserFiles.ReadDir("browser")
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		content, err := browserFiles.ReadFile("browser/" + entry.Name())
		if err != nil {
			return false, err
		}
		target := filepath.Join(b.dir, entry.Name())
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

func (b *browser) command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w", name, args, err)
	}
	return nil
}

// shoot draws the pages. Pictures and reports are written to out.
func (b *browser) shoot(ctx context.Context, shots []shot, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	list, err := json.Marshal(map[string]any{"chromium": b.chromium, "pages": shots})
	if err != nil {
		return err
	}
	file := filepath.Join(out, "pages.json")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		return err
	}
	return b.command(ctx, "node", "shoot.mjs", file)
}
