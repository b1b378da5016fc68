// Package config makes the manifests that are copies of other files of the repository, and that git
// ignores: PrometheusRules from rules/, and AddOnTemplates from the exporter's folders. `make config`
// calls it, and so do the tests that build these folders.
package config

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// Generate writes the manifests below config in the root of the repository. It leaves equal files
// alone, and replaces others at once: tests of several packages may call it at the same time.
func Generate(root string) error {
	files, err := prometheusFiles(root)
	if err != nil {
		return err
	}
	addOn, err := addOnFiles(root)
	if err != nil {
		return err
	}
	maps.Copy(files, addOn)
	for name, text := range files {
		if err := replace(filepath.Join(root, "config", filepath.FromSlash(name)), append([]byte("# Generated: make config\n"), text...)); err != nil {
			return err
		}
	}
	return nil
}

func replace(path string, text []byte) error {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, text) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
