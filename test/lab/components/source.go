package components

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// SourceDir returns the folder with the source of a module that a family pins; "" is the
// repository's own go.mod. It downloads the module if needed. The lab installs the
// manifests of that source.
func SourceDir(ctx context.Context, root, familyName, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = root
	if familyName != "" {
		cmd.Dir = family{name: familyName}.dir(root)
	}
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	output, err := cmd.Output()
	var source struct{ Dir, Error string }
	if err == nil {
		err = json.Unmarshal(output, &source)
	}
	if err != nil || source.Dir == "" {
		return "", fmt.Errorf("find the source of %s (run `go mod download` in %s): %w: %s", module, cmd.Dir, err, source.Error)
	}
	return source.Dir, nil
}
