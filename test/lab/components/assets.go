package components

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// assetNames are the programs that an API server of envtest needs.
var assetNames = []string{"etcd", "kube-apiserver", "kubectl"}

// Assets returns a folder for KUBEBUILDER_ASSETS. It has links to the programs of Build and
// nothing else: a folder of the developer with one right program may have others of other
// versions.
func Assets(ctx context.Context, root string, out io.Writer) (string, error) {
	b, err := Build(ctx, root, out, assetNames...)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.New()
	for _, name := range assetNames {
		_, _ = io.WriteString(key, b.Path(name)+"\n") // a hash accepts all writes
	}
	dir := filepath.Join(cache, "assets-"+hex.EncodeToString(key.Sum(nil))[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range assetNames {
		// Another process may create the same link.
		if err := os.Symlink(b.Path(name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	return dir, nil
}
