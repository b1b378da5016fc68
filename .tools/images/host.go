package main

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// hostBase is the value of --base for the C library of this machine.
const hostBase = "host"

// cLibraries are the libraries of glibc that NVIDIA's library loads.
var cLibraries = []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}

// cLicenses are the places of glibc's license in distributions.
var cLicenses = []string{"/usr/share/doc/libc6/copyright", "/usr/share/licenses/glibc/LICENSES", "/usr/share/licenses/glibc/COPYING.LIB"}

var libraryPath = regexp.MustCompile(`(?m)^\s*(\S+) => (/\S+)`)

// hostFiles returns the dynamic loader and the C library of this machine, which the binary
// was linked with.
func hostFiles(ctx context.Context, platform v1.Platform, binary string) ([]file, error) {
	if platform.OS != runtime.GOOS || platform.Architecture != runtime.GOARCH {
		return nil, fmt.Errorf("it has the C library of this machine only: set PLATFORMS=%s/%s", runtime.GOOS, runtime.GOARCH)
	}
	loader, imported, err := linkage(binary)
	if err != nil {
		return nil, err
	}
	for _, library := range imported {
		if !slices.Contains(cLibraries, library) && library != filepath.Base(loader) {
			return nil, fmt.Errorf("the program needs %s, which is not part of the C library", library)
		}
	}
	out, err := exec.CommandContext(ctx, "ldd", binary).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd: %w", err)
	}
	var folder string
	for _, m := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		if m[1] == "libc.so.6" {
			folder = filepath.Dir(m[2])
		}
	}
	if folder == "" {
		return nil, fmt.Errorf("ldd names no libc.so.6:\n%s", out)
	}
	paths := []string{loader}
	for _, library := range cLibraries {
		paths = append(paths, filepath.Join(folder, library))
	}
	return hostLayer(paths)
}

// linkage returns the dynamic loader of a binary and the libraries that it imports.
func linkage(binary string) (loader string, imported []string, err error) {
	f, err := elf.Open(binary)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = f.Close() }() // only read
	section := f.Section(".interp")
	if section == nil {
		return "", nil, fmt.Errorf("%s is static", binary)
	}
	text, err := section.Data()
	if err != nil {
		return "", nil, err
	}
	imported, err = f.ImportedLibraries()
	return strings.TrimRight(string(text), "\x00"), imported, err
}

// hostLayer returns the files at the paths of this machine. If a top folder is a symbolic
// link, such as /lib to usr/lib, so it is in the image: the container toolkit adds NVIDIA's
// library to one folder, and both names must find it.
func hostLayer(paths []string) ([]file, error) {
	files := []file{{name: "etc/", mode: 0o755}, {name: "tmp/", mode: 0o1777}}
	added := map[string]bool{}
	for _, path := range paths {
		top := "/" + strings.SplitN(path, "/", 3)[1]
		resolved, err := filepath.EvalSymlinks(top)
		if err != nil {
			return nil, err
		}
		if resolved != top && !added[top] {
			added[top] = true
			files = append(files, file{name: top[1:], mode: 0o777, target: strings.TrimPrefix(resolved, "/")})
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: strings.TrimPrefix(resolved+strings.TrimPrefix(path, top), "/"), mode: 0o755, content: content})
	}
	for _, path := range cLicenses {
		if content, err := os.ReadFile(path); err == nil {
			return append(files, file{name: "licenses/C-LIBRARY.txt", mode: 0o644, content: content}), nil
		}
	}
	return nil, fmt.Errorf("the license of the C library is in none of %s: images must contain it", strings.Join(cLicenses, ", "))
}

// fileComponents returns the regular files of a layer for the SBOM.
func fileComponents(files []file) []cdx.Component {
	var components []cdx.Component
	for _, f := range files {
		if len(f.content) == 0 {
			continue
		}
		sum := sha256.Sum256(f.content)
		components = append(components, cdx.Component{BOMRef: "file:/" + f.name, Type: cdx.ComponentTypeFile, Name: "/" + f.name,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}})
	}
	return components
}
