package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// image is a built image.
type image struct {
	repository string // with registry and path
	digest     string
}

func (i image) String() string { return i.repository + "@" + i.digest }

// hasRegistry reports whether a node can pull the image: its name contains a registry. Manifests and
// charts name other images by the version: an archive that is loaded on a node has that tag only, and
// not the digest, which is that of the index of all platforms.
func (i image) hasRegistry() bool { return strings.Contains(i.repository, "/") }

// requiredImages are the images that the manifests name.
var requiredImages = []string{"plimsoll-operator", "plimsoll-exporter"}

// readDigests reads the digests that make images writes, one NAME@DIGEST per line, and
// returns the images by the last part of their name.
func readDigests(file string) (map[string]image, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	images := map[string]image{}
	for line := range strings.FieldsSeq(string(text)) {
		repository, digest, ok := strings.Cut(line, "@")
		if !ok {
			return nil, fmt.Errorf("%s: %q has no digest", file, line)
		}
		images[path.Base(repository)] = image{repository, digest}
	}
	for _, name := range requiredImages {
		if images[name].digest == "" {
			err = errors.Join(err, fmt.Errorf("%s has no digest of %s", file, name))
		}
	}
	return images, err
}

// copyImageFiles copies the digests and the SBOMs.
func (o options) copyImageFiles() error {
	files, err := filepath.Glob(filepath.Join(o.images, "*.cdx.json"))
	if err != nil {
		return err
	}
	for _, file := range slices.Concat([]string{filepath.Join(o.images, "digests.txt")}, files) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := o.write(filepath.Base(file), text); err != nil {
			return err
		}
	}
	return nil
}
