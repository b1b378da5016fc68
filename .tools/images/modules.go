package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// modulesOf returns the modules that a binary contains.
func modulesOf(binary string) ([]*debug.Module, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	modules := make([]*debug.Module, 0, len(info.Deps))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, m)
	}
	return modules, nil
}

// writeSBOM writes the modules of a binary and the components of its base image as
// CycloneDX JSON, next to the images.
func (o options) writeSBOM(p program, platform v1.Platform, binary string, base []cdx.Component) error {
	modules, err := modulesOf(binary)
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: o.time().Format(time.RFC3339),
		Component: &cdx.Component{Type: cdx.ComponentTypeApplication, Name: p.name, Version: o.version},
	}
	components := make([]cdx.Component, 0, len(modules))
	for _, m := range modules {
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl})
	}
	components = append(components, base...)
	bom.Components = &components
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.output, fmt.Sprintf("%s-%s-%s.cdx.json", p.name, platform.OS, platform.Architecture)), text.Bytes(), 0o644)
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying)(\.|$)`)

// licenses returns the license and notice files of this repository and of all modules of
// a binary.
func (o options) licenses(ctx context.Context, binary string) ([]byte, error) {
	modules, err := modulesOf(binary)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	if err := appendLicenses(&all, "Plimsoll", o.root); err != nil {
		return nil, err
	}
	for _, m := range modules {
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", m.Path)
		cmd.Dir, cmd.Stderr = o.root, os.Stderr
		dir, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		if err := appendLicenses(&all, m.Path+" "+m.Version, string(bytes.TrimSpace(dir))); err != nil {
			return nil, err
		}
	}
	return all.Bytes(), nil
}

// appendLicenses appends the license files of a folder, under a title.
func appendLicenses(all *bytes.Buffer, title, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(all, "=== %s: %s\n\n%s\n\n", title, e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s has no license file", title)
	}
	return nil
}
