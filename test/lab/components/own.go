package components

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// BuildOwn builds Plimsoll's programs from the repository at root into root/bin, and adds
// their paths.
func (b Binaries) BuildOwn(ctx context.Context, root string, out io.Writer) error {
	return errors.Join(
		b.buildProgram(ctx, root, "CGO_ENABLED=0", "plimsoll-operator", "./operator/cmd/plimsoll-operator", out),
		b.buildProgram(ctx, root, "CGO_ENABLED=0", "kubectl-plimsoll", "./operator/cmd/kubectl-plimsoll", out),
		b.buildExporter(ctx, root, out))
}

// BuildExporter builds the exporter and nothing else.
func BuildExporter(ctx context.Context, root string, out io.Writer) (Binaries, error) {
	b := Binaries{paths: map[string]string{}}
	return b, b.buildExporter(ctx, root, out)
}

// buildExporter builds the exporter, which loads NVIDIA's library at run time, through
// cgo.
func (b Binaries) buildExporter(ctx context.Context, root string, out io.Writer) error {
	return b.buildProgram(ctx, root, "CGO_ENABLED=1", "plimsoll-exporter", "./exporter/cmd/plimsoll-exporter", out)
}

func (b Binaries) buildProgram(ctx context.Context, root, cgo, name, pkg string, out io.Writer) error {
	dir := filepath.Join(root, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b.paths[name] = filepath.Join(dir, name)
	_, err := goBuild(ctx, root, name, cgo, []string{"build", "-v", "-o", dir + "/", pkg}, out)
	return err
}
