package main

import (
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"

	"plimsoll.dev/plimsoll/test/look/chromium"
)

//go:embed browser
var browserFiles embed.FS

// shot is a page with its picture and its report.
type shot struct {
	Dashboard string `json:"-"`
	URL       string `json:"url"`
	Width     int    `json:"width"`
	Picture   string `json:"picture"`
	Report    string `json:"report"`
}

// prepareBrowser installs Grafana's packages (440 MB) if they have changed, and builds the bundle.
func prepareBrowser(ctx context.Context, program string) (*chromium.Driver, error) {
	files, err := fs.Sub(browserFiles, "browser")
	if err != nil {
		return nil, err
	}
	d, err := chromium.Prepare(ctx, "look", files, program, "install", "--legacy-peer-deps")
	if err != nil {
		return nil, err
	}
	return d, d.Run(ctx, os.Stdout, "node", "build.mjs")
}

// shoot draws the pages. Pictures and reports are written to out.
func shoot(ctx context.Context, d *chromium.Driver, shots []shot, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	list, err := json.Marshal(map[string]any{"chromium": d.Chromium, "pages": shots})
	if err != nil {
		return err
	}
	file := filepath.Join(out, "pages.json")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		return err
	}
	return d.Run(ctx, os.Stdout, "node", "shoot.mjs", file)
}
