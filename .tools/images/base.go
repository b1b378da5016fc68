package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// baseImage returns the base image for a platform, and what it adds to the SBOM. The base is
// "host", the folder of an OCI layout, a folder with a root file system, or a digest in a
// registry.
func (o options) baseImage(ctx context.Context, platform v1.Platform, binary string) (v1.Image, []cdx.Component, error) {
	if o.base == hostBase {
		files, err := hostFiles(ctx, platform, binary)
		if err != nil {
			return nil, nil, err
		}
		image, err := o.imageOf(files)
		return image, fileComponents(files), err
	}
	image, err := o.readBase(ctx, platform)
	if err != nil {
		return nil, nil, err
	}
	digest, err := image.Digest()
	return image, []cdx.Component{{BOMRef: "base", Type: cdx.ComponentTypeContainer, Name: "base image", Version: digest.String()}}, err
}

func (o options) readBase(ctx context.Context, platform v1.Platform) (v1.Image, error) {
	if _, err := os.Stat(filepath.Join(o.base, "index.json")); err == nil {
		index, err := layout.ImageIndexFromPath(o.base)
		if err != nil {
			return nil, err
		}
		return imageFor(index, platform)
	}
	if info, err := os.Stat(o.base); err == nil && info.IsDir() {
		files, err := rootFiles(o.base)
		if err != nil {
			return nil, err
		}
		return o.imageOf(files)
	}
	digest, err := name.NewDigest(o.base)
	if err != nil {
		return nil, fmt.Errorf("it must be host, the folder of an OCI layout or of a root file system, or have a digest, so that two builds are equal: %w", err)
	}
	return remote.Image(digest, remote.WithPlatform(platform), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx))
}

// imageOf returns an image with one layer.
func (o options) imageOf(files []file) (v1.Image, error) {
	layer, err := layerOf(o.time(), files)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, layer)
}

// rootFiles returns the folders, regular files and symbolic links below a folder, sorted by
// name. In the image they belong to root.
func rootFiles(root string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f := file{name: filepath.ToSlash(relative), mode: int64(info.Mode().Perm())}
		switch {
		case entry.IsDir():
			f.name += "/"
		case info.Mode()&fs.ModeSymlink != 0:
			f.target, err = os.Readlink(path)
		case info.Mode().IsRegular():
			f.content, err = os.ReadFile(path)
		default:
			return fmt.Errorf("%s is not a folder, a regular file or a symbolic link", path)
		}
		files = append(files, f)
		return err
	})
	return files, err
}

// imageFor returns the image of an index for a platform. The index of a layout may hold
// the index of the image.
func imageFor(index v1.ImageIndex, platform v1.Platform) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, entry := range manifest.Manifests {
		switch {
		case entry.MediaType.IsIndex():
			inner, err := index.ImageIndex(entry.Digest)
			if err != nil {
				return nil, err
			}
			return imageFor(inner, platform)
		case match.Platforms(platform)(entry):
			return index.Image(entry.Digest)
		}
	}
	return nil, fmt.Errorf("it has no image for %s", platform)
}
