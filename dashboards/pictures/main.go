// Command pictures runs `make demo QUICK=1` and draws its output as demo.svg.
// architecture.svg is drawn by hand.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

// demoSources are the files that determine what demo.svg shows, relative to the root of
// the repository.
var demoSources = []string{
	"config/samples/hub/policy.yaml", "config/samples/hub/gate.yaml", "test/demo/embedded.go", "test/demo/table.go", "test/demo/text.go",
	"operator/embedded/decide.go", "operator/internal/admission/gate/message.go", "operator/internal/admission/gate/explain.go", "operator/internal/admission/gate/next_event.go",
	"operator/internal/admission/explain/summary.go", "operator/internal/admission/explain/clusters.go", "dashboards/pictures/terminal.go",
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// run expects the root of the repository as its working directory.
func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "plm")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.CommandContext(ctx, "go", "run", "./test/demo", "--quick", "--dir", dir)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	hash, err := hashFiles(".", demoSources)
	if err != nil {
		return err
	}
	_, steps, found := strings.Cut(string(output), "\n[1/")
	if !found {
		return fmt.Errorf("the demo printed no first step:\n%s", output)
	}
	return os.WriteFile(filepath.Join("dashboards", "pictures", "demo.svg"), drawTerminal("make demo QUICK=1", "[1/"+steps, hash), 0o644)
}

// hashFiles returns a hash of the files' contents.
func hashFiles(root string, files []string) (string, error) {
	h := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, file, len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
