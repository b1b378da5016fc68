package main

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// here is the platform of this machine.
var here = v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}

// unpack writes the files of a built image to a new folder and returns it.
func unpack(t *testing.T, layoutFolder string) string {
	t.Helper()
	index, err := layout.ImageIndexFromPath(layoutFolder)
	if err != nil {
		t.Fatal(err)
	}
	image, err := imageFor(index, here)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err == nil {
			err = unpackEntry(root, header, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpackEntry(root string, header *tar.Header, content io.Reader) error {
	path := filepath.Join(root, header.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(path, 0o755)
	case tar.TypeSymlink:
		// The target may come later in the archive.
		if err := os.MkdirAll(filepath.Join(root, header.Linkname), 0o755); err != nil {
			return err
		}
		return os.Symlink(header.Linkname, path)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, header.FileInfo().Mode())
}

// runIn runs a program with an unpacked image as its root, in a user namespace.
func runIn(t *testing.T, root string, env []string, args ...string) (string, error) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: this machine allows no user namespace, so the image is not started: %v %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--map-root-user", "--root=" + root}, args...)...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The base "host" has all that a program with cgo needs, and two builds are equal.
func TestHostBase(t *testing.T) {
	var digests [2]v1.Hash
	var o options
	for i := range digests {
		o = testOptions(t)
		o.base, o.platforms = hostBase, here.String()
		source := "package main\n\n// #include <unistd.h>\nimport \"C\"\n\nvar version = \"none\"\n\nfunc main() { println(version, C.getppid() >= 0) }\n"
		if err := os.WriteFile(filepath.Join(o.root, "small", "main.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		withC := small
		withC.needsC = true
		var err error
		if digests[i], err = o.build(t.Context(), withC); err != nil {
			t.Fatal(err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("digests %s and %s", digests[0], digests[1])
	}
	root := unpack(t, filepath.Join(o.output, "small"))
	if _, err := os.Stat(filepath.Join(root, "licenses", "C-LIBRARY.txt")); err != nil {
		t.Error(err)
	}
	bom, err := os.ReadFile(filepath.Join(o.output, fmt.Sprintf("small-%s-%s.cdx.json", here.OS, here.Architecture)))
	if err != nil || !strings.Contains(string(bom), "libc.so.6") || !strings.Contains(string(bom), "SHA-256") {
		t.Errorf("the SBOM does not list the C library: %v\n%s", err, bom)
	}
	if out, err := runIn(t, root, nil, "/small"); err != nil || out != "stamped true\n" {
		t.Errorf("%v: %q", err, out)
	}
}

func TestHostBaseHasOnePlatform(t *testing.T) {
	other := v1.Platform{OS: "linux", Architecture: map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]}
	if _, err := hostFiles(t.Context(), other, "none"); err == nil || !strings.Contains(err.Error(), "PLATFORMS="+here.String()) {
		t.Error(err)
	}
}

// A folder with a root file system is a base.
func TestRootFileSystemAsBase(t *testing.T) {
	o := testOptions(t)
	o.base, o.platforms = t.TempDir(), here.String()
	if err := errors.Join(os.MkdirAll(filepath.Join(o.base, "usr/lib"), 0o755), os.Symlink("usr/lib", filepath.Join(o.base, "lib")),
		os.WriteFile(filepath.Join(o.base, "usr/lib/libc.so.6"), []byte("libc"), 0o600)); err != nil {
		t.Fatal(err)
	}
	withC := small
	withC.needsC = true
	if _, err := o.build(t.Context(), withC); err != nil {
		t.Fatal(err)
	}
	root := unpack(t, filepath.Join(o.output, "small"))
	if text, err := os.ReadFile(filepath.Join(root, "lib/libc.so.6")); err != nil || string(text) != "libc" {
		t.Errorf("%q, %v", text, err)
	}
}

// The exporter starts in its image and loads NVIDIA's library, here a fake, with the C
// library of the image.
func TestExporterImage(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the exporter")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	o := options{root: root, output: t.TempDir(), version: "v1.2.3", created: 1_700_000_000, base: hostBase, platforms: here.String(),
		ldflags: "-s -w -X github.com/prometheus/common/version.Version=v1.2.3"}
	if _, err := o.build(t.Context(), programs["exporter"]); err != nil {
		t.Fatal(err)
	}
	image := unpack(t, filepath.Join(o.output, "plimsoll-exporter"))
	out, err := runIn(t, image, nil, "/plimsoll-exporter", "--version")
	if err != nil || !strings.Contains(out, "v1.2.3") {
		t.Errorf("%v: %s", err, out)
	}
	args := []string{"/plimsoll-exporter", "--once", "--node-name=n", "--no-kubernetes", "--source=nvml", "--collect-interval=100"}
	if out, err := runIn(t, image, nil, args...); err == nil || !strings.Contains(out, "libnvidia-ml.so.1") {
		t.Errorf("without NVIDIA's library: %v: %s", err, out)
	}
	addFakeDriver(t, root, image)
	if out, err := runIn(t, image, []string{"PLIMSOLL_FAKE_CONTROL=/control"}, args...); err != nil || !strings.Contains(out, "DCGM_FI_DEV_SM_CLOCK{") {
		t.Errorf("with a fake of NVIDIA's library: %v: %s", err, out)
	}
}

// addFakeDriver adds a fake of NVIDIA's library with one device where the container
// toolkit adds the real one. Like that, it needs all parts of the C library.
func addFakeDriver(t *testing.T, root, image string) {
	t.Helper()
	libraries, err := filepath.Glob(filepath.Join(image, "usr/lib/*/libc.so.6"))
	if err != nil || len(libraries) != 1 {
		t.Skipf("the C library is not in usr/lib/*: %v %v", libraries, err)
	}
	out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", "-o", filepath.Join(filepath.Dir(libraries[0]), "libnvidia-ml.so.1"),
		filepath.Join(root, "exporter/internal/nvml/testdata/fake/fake.c"), "-Wl,--no-as-needed", "-lpthread", "-ldl", "-lm", "-lrt").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	control := make([]byte, 1<<16)
	const count, driver, devices, serial, clock = 0, 13, 64, 2, 5 // words of 8 bytes, see fake.c
	for word, value := range map[int]uint64{count: 1, driver: 580, devices + serial: 0xa0, devices + clock: 1980} {
		binary.NativeEndian.PutUint64(control[8*word:], value)
	}
	if err := os.WriteFile(filepath.Join(image, "control"), control, 0o600); err != nil {
		t.Fatal(err)
	}
}
