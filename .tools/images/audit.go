package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowedLicenses are the licenses that modules of the programs may have. Each permits
// redistribution with its text, which the images contain.
var allowedLicenses = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-2-Clause-Views", "MIT", "ISC", "MPL-2.0", "Unlicense", "CC0-1.0"}

// minCoverage is the share of a license file, in percent, that must match known licenses.
const minCoverage = 75

// checkLicenses checks the licenses of all modules of all programs.
func (o options) checkLicenses(ctx context.Context) error {
	checked, problems := map[string]bool{}, []error{}
	for _, p := range programs {
		cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", p.pkg)
		cmd.Dir, cmd.Stderr = o.root, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+map[bool]string{true: "1", false: "0"}[p.needsC])
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(out)) {
			path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
			if path == "" || checked[path] {
				continue
			}
			checked[path] = true
			if err := checkLicense(dir); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", path, err))
			}
		}
	}
	if len(problems) == 0 {
		fmt.Printf("licenses of %d modules: %s\n", len(checked), strings.Join(allowedLicenses, ", "))
	}
	return errors.Join(problems...)
}

// checkLicense checks the license files in the folder of a module.
func checkLicense(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	known := false
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) || strings.HasPrefix(strings.ToUpper(e.Name()), "NOTICE") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		coverage := licensecheck.Scan(bytes.TrimSpace(text))
		for _, m := range coverage.Match {
			if !m.IsURL && !slices.Contains(allowedLicenses, m.ID) {
				return fmt.Errorf("%s has the license %s, which is not allowed", e.Name(), m.ID)
			}
		}
		known = known || coverage.Percent >= minCoverage
	}
	if !known {
		return errors.New("no file has a known license")
	}
	return nil
}
