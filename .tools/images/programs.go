package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// program is a command that gets an image.
type program struct {
	name string // of the image and of the binary
	pkg  string
	// needsC is set for programs with cgo. They need a C compiler for each platform, and a
	// base image with the C library.
	needsC bool
	title  string
}

var programs = map[string]program{
	"operator": {name: "plimsoll-operator", pkg: "./operator/cmd/plimsoll-operator", title: "Plimsoll operator"},
	"cli":      {name: "kubectl-plimsoll", pkg: "./operator/cmd/kubectl-plimsoll", title: "kubectl plimsoll"},
	"exporter": {name: "plimsoll-exporter", pkg: "./exporter/cmd/plimsoll-exporter", needsC: true, title: "Plimsoll exporter"},
}

var errNoBase = errors.New("it loads NVIDIA's library with the C library of its base image: set BASE to host for that of this machine, " +
	"to NAME@sha256:DIGEST, for example a digest of gcr.io/distroless/base-nossl-debian13, or to the folder of an OCI layout or of a root file system")

// compile builds the binary for a platform and returns its path.
func (o options) compile(ctx context.Context, p program, platform v1.Platform) (string, error) {
	binary := filepath.Join(o.output, "bin", platform.OS+"-"+platform.Architecture, p.name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", o.ldflags, "-o", binary, p.pkg)
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.root, os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "CGO_ENABLED=0")
	if p.needsC {
		cc, err := compilerFor(platform)
		if err != nil {
			return "", err
		}
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1", "CC="+cc)
	}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build for %s: %w", platform, err)
	}
	return binary, nil
}

// compilerFor returns the C compiler for a platform: CC on the platform of this machine,
// CC_ARM64 and the like for others.
func compilerFor(platform v1.Platform) (string, error) {
	variable := "CC_" + strings.ToUpper(platform.Architecture)
	if cc := os.Getenv(variable); cc != "" {
		return cc, nil
	}
	if platform.Architecture != runtime.GOARCH || platform.OS != runtime.GOOS {
		return "", fmt.Errorf("a C compiler for %s is required: set %s, for example to aarch64-linux-gnu-gcc, or build only --platforms=%s/%s", platform, variable, runtime.GOOS, runtime.GOARCH)
	}
	if cc := os.Getenv("CC"); cc != "" {
		return cc, nil
	}
	return "gcc", nil
}
