package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// platforms are the platforms of the command line tool.
var platforms = []struct{ os, arch string }{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// program is the name of the command line tool.
const program = "kubectl-plimsoll"

func (o options) archiveName(os, arch string) string {
	return fmt.Sprintf("%s_%s_%s_%s.tar.gz", program, o.version, os, arch)
}

// writeCLI compiles the command line tool for each platform and packs it with the license.
func (o options) writeCLI(ctx context.Context) error {
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // a folder in the temporary directory
	license, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return err
	}
	for _, p := range platforms {
		binary := filepath.Join(work, p.os+"-"+p.arch)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", o.ldflags, "-o", binary, o.cli)
		cmd.Dir, cmd.Stderr = o.root, os.Stderr
		cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go build for %s/%s: %w", p.os, p.arch, err)
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		entries := []entry{{program, 0o755, content}, {"LICENSE", 0o644, license}}
		if err := o.writeArchive(o.archiveName(p.os, p.arch), entries); err != nil {
			return err
		}
	}
	return nil
}

// writeKrewManifest writes the manifest of the plugin for krew, kubectl's plugin manager.
func (o options) writeKrewManifest() error {
	var entries []any
	for _, p := range platforms {
		name := o.archiveName(p.os, p.arch)
		sum, err := o.sum(name)
		if err != nil {
			return err
		}
		entries = append(entries, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": p.os, "arch": p.arch}},
			"uri":      o.downloads + "/" + name, "sha256": sum, "bin": program,
			"files": []map[string]string{{"from": program, "to": "."}, {"from": "LICENSE", "to": "."}},
		})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]string{"name": "plimsoll"},
		"spec": map[string]any{
			"version": o.version, "homepage": "https://plimsoll.dev", "platforms": entries,
			"shortDescription": "Explain scores and placement of GPU and TPU jobs",
			"description": "Shows why a cluster has its score, and why a job runs there or waits.\n" +
				"Checks, tests and previews ScoringPolicies of Plimsoll.\n",
		},
	})
	if err != nil {
		return err
	}
	return o.write("krew.yaml", text)
}

// sum returns the SHA-256 of a file of the release in hexadecimal.
func (o options) sum(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join(o.output, name))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
