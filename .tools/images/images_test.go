package main

import (
	"archive/tar"
	"debug/elf"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// small is a program that compiles quickly. The images of the product differ in the
// program only.
var small = program{name: "small", pkg: "./small", title: "Small"}

// testOptions returns options for a module with one small program.
func testOptions(t *testing.T) options {
	t.Helper()
	root := t.TempDir()
	for file, content := range map[string]string{
		"go.mod":        "module example.com/small\n\ngo 1.26.0\n",
		"LICENSE":       "the license",
		"small/main.go": "package main\n\nvar version = \"none\"\n\nfunc main() { println(version) }\n",
	} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return options{root: root, output: t.TempDir(), version: "v1.2.3", created: 1_700_000_000, revision: "abc", platforms: "linux/amd64,linux/arm64", ldflags: "-s -w -X main.version=stamped"}
}

// Builds in two folders have the same digest.
func TestBuildsAreReproducible(t *testing.T) {
	var digests [2]v1.Hash
	for i := range digests {
		var err error
		if digests[i], err = testOptions(t).build(t.Context(), small); err != nil {
			t.Fatal(err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("digests %s and %s", digests[0], digests[1])
	}
}

func TestPushedImage(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	o := testOptions(t)
	o.registry = strings.TrimPrefix(server.URL, "http://") + "/team"
	digest, err := o.build(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(o.registry + "/small:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := index.Digest(); err != nil || got != digest {
		t.Errorf("pushed %s, want %s (%v)", got, digest, err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		image, err := imageFor(index, v1.Platform{OS: "linux", Architecture: architecture})
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image)
	}
}

// checkImage checks the configuration of an image and its only layer.
func checkImage(t *testing.T, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/small"}) ||
		c.Labels["org.opencontainers.image.version"] != "v1.2.3" || c.Labels["org.opencontainers.image.revision"] != "abc" {
		t.Errorf("configuration %+v", c)
	}
	files := filesOf(t, image)
	if len(files) != 2 || !strings.Contains(files["licenses/LICENSES.txt"], "the license") {
		t.Errorf("%d files, licenses %q", len(files), files["licenses/LICENSES.txt"])
	}
	binary, err := elf.NewFile(strings.NewReader(files["small"]))
	if err != nil {
		t.Fatal(err)
	}
	if binary.Section(".symtab") != nil || binary.Section(".interp") != nil {
		t.Error("the binary is not stripped, or needs a dynamic loader")
	}
	if !strings.Contains(files["small"], "stamped") {
		t.Error("the binary has no version")
	}
	if strings.Contains(files["small"], os.TempDir()) {
		t.Error("the binary contains a path of the machine that built it")
	}
}

// filesOf returns the files of an image.
func filesOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	files := map[string]string{}
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

// A program with cgo is put on its base image.
func TestBaseImage(t *testing.T) {
	o := testOptions(t)
	o.platforms = "linux/" + runtime.GOARCH
	withC := small
	withC.needsC = true
	if _, err := o.build(t.Context(), withC); err == nil || !strings.Contains(err.Error(), "set BASE") {
		t.Errorf("without a base image: %v", err)
	}
	o.base = "registry.example.com/base:latest"
	if _, err := o.build(t.Context(), withC); err == nil || !strings.Contains(err.Error(), "have a digest") {
		t.Errorf("with a base image without a digest: %v", err)
	}
	layer, err := layerOf(o.time(), []file{{name: "lib/libc.so.6", mode: 0o755, content: []byte("libc")}})
	if err != nil {
		t.Fatal(err)
	}
	base, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	o.base = t.TempDir()
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: base, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	if _, err := layout.Write(o.base, index); err != nil {
		t.Fatal(err)
	}
	if _, err := o.build(t.Context(), withC); err != nil {
		t.Fatal(err)
	}
	built, err := layout.ImageIndexFromPath(filepath.Join(o.output, "small"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := imageFor(built, v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	if files := filesOf(t, image); files["lib/libc.so.6"] != "libc" || files["small"] == "" {
		t.Errorf("%d files", len(files))
	}
}

func TestCrossCompilationOfCNeedsACompiler(t *testing.T) {
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	t.Setenv("CC_"+strings.ToUpper(other), "")
	if _, err := compilerFor(v1.Platform{OS: "linux", Architecture: other}); err == nil || !strings.Contains(err.Error(), "set CC_"+strings.ToUpper(other)) {
		t.Error(err)
	}
}
