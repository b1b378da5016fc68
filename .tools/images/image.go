package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the numeric user of the images. A name could not be checked by runAsNonRoot.
const user = "65532:65532"

// build builds the image for all platforms, writes its files and pushes it if a registry
// is set. It returns the digest of the index.
func (o options) build(ctx context.Context, p program) (v1.Hash, error) {
	if p.needsC && o.base == "" {
		return v1.Hash{}, errNoBase
	}
	tag, err := name.NewTag(o.reference(p) + ":" + o.version)
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, text := range strings.Split(o.platforms, ",") {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			return v1.Hash{}, err
		}
		image, err := o.buildPlatform(ctx, p, *platform)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
		archive := filepath.Join(o.output, fmt.Sprintf("%s-%s-%s.tar", p.name, platform.OS, platform.Architecture))
		if err := tarball.WriteToFile(archive, tag, image); err != nil {
			return v1.Hash{}, err
		}
	}
	folder := filepath.Join(o.output, p.name)
	if err := os.RemoveAll(folder); err != nil {
		return v1.Hash{}, err
	}
	if _, err := layout.Write(folder, index); err != nil {
		return v1.Hash{}, err
	}
	if o.registry != "" {
		if err := remote.WriteIndex(tag, index, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx)); err != nil {
			return v1.Hash{}, err
		}
	}
	return index.Digest()
}

// buildPlatform compiles the program, writes its SBOM, and adds the program and the
// licenses of its modules to the base image.
func (o options) buildPlatform(ctx context.Context, p program, platform v1.Platform) (v1.Image, error) {
	binary, err := o.compile(ctx, p, platform)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	licenses, err := o.licenses(ctx, binary)
	if err != nil {
		return nil, fmt.Errorf("licenses: %w", err)
	}
	layer, err := layerOf(o.time(), []file{{name: p.name, mode: 0o755, content: content}, {name: "licenses/LICENSES.txt", mode: 0o644, content: licenses}})
	if err != nil {
		return nil, err
	}
	base := v1.Image(empty.Image)
	var components []cdx.Component
	if p.needsC {
		if base, components, err = o.baseImage(ctx, platform, binary); err != nil {
			return nil, fmt.Errorf("base image %s: %w", o.base, err)
		}
	}
	if err := o.writeSBOM(p, platform, binary, components); err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}
	image, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(base, types.OCIConfigJSON), types.OCIManifestSchema1), layer)
	if err != nil {
		return nil, err
	}
	return o.configure(image, p, platform)
}

// configure sets the entry point, the user and the labels.
func (o options) configure(image v1.Image, p program, platform v1.Platform) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, v1.Time{Time: o.time()}
	config.Config.Entrypoint, config.Config.Cmd, config.Config.User = []string{"/" + p.name}, nil, user
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title":    p.title,
		"org.opencontainers.image.version":  o.version,
		"org.opencontainers.image.created":  o.time().Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	for label, value := range map[string]string{"revision": o.revision, "source": o.source} {
		if value != "" {
			config.Config.Labels["org.opencontainers.image."+label] = value
		}
	}
	return mutate.ConfigFile(image, config)
}

// file is an entry of a layer: a folder if its name ends with a slash, a symbolic link if it
// has a target, else a regular file.
type file struct {
	name    string
	mode    int64
	content []byte
	target  string
}

// layerOf returns a layer with the files. They belong to root, so the program can't
// replace itself.
func layerOf(modified time.Time, files []file) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Linkname: f.target, Mode: f.mode, Size: int64(len(f.content)), ModTime: modified, Format: tar.FormatPAX}
		switch {
		case strings.HasSuffix(f.name, "/"):
			header.Typeflag = tar.TypeDir
		case f.target != "":
			header.Typeflag = tar.TypeSymlink
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}
