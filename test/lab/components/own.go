package components

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
)

// exporter needs cgo to load NVIDIA's library at run time.
const exporter = "./exporter/cmd/plimsoll-exporter"

// BuildOwn builds Plimsoll's programs from the repository at root into root/bin, and adds
// their paths.
func (b Binaries) BuildOwn(ctx context.Context, root string, out io.Writer) error {
	return b.buildOwn(ctx, root, out, exporter, "./operator/cmd/plimsoll-operator", "./operator/cmd/kubectl-plimsoll")
}

// BuildExporter builds the exporter and nothing else.
func BuildExporter(ctx context.Context, root string, out io.Writer) (Binaries, error) {
	b := Binaries{paths: map[string]string{}}
	return b, b.buildOwn(ctx, root, out, exporter)
}

func (b Binaries) buildOwn(ctx context.Context, root string, out io.Writer, packages ...string) error {
	dir := filepath.Join(root, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, pkg := range packages {
		b.paths[path.Base(pkg)] = filepath.Join(dir, path.Base(pkg))
	}
	_, err := goBuild(ctx, root, "plimsoll", append([]string{"build", "-v", "-o", dir + "/"}, packages...), out)
	return err
}
