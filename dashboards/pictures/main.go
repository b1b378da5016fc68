// Command pictures draws terminals: fit.svg from a script of the CLI's tests, and demo.svg from a run of
// `make demo QUICK=1`. architecture.svg is drawn by hand.
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
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
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
	fit, err := drawScript(".")
	if err == nil {
		err = os.WriteFile(filepath.Join("dashboards", "pictures", "fit.svg"), fit, 0o644)
	}
	if err != nil {
		return err
	}
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
	return os.WriteFile(filepath.Join("dashboards", "pictures", "demo.svg"), drawTerminal("Output of make demo QUICK=1", "$ make demo QUICK=1\n[1/"+steps, hash), 0o644)
}

// fitScript has the commands of fit.svg, each followed by a comparison with its output.
const fitScript = "operator/internal/cli/testdata/script/tour.txtar"

var shownCommand = regexp.MustCompile(`(?m)^(?:exec|exits \d) kubectl-plimsoll (.*)\ncmp stdout (.*)$`)

// drawScript draws fit.svg.
func drawScript(root string) ([]byte, error) {
	script, err := txtar.ParseFile(filepath.Join(root, filepath.FromSlash(fitScript)))
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, m := range shownCommand.FindAllStringSubmatch(string(script.Comment), -1) {
		fmt.Fprintf(&b, "$ kubectl plimsoll %s\n", m[1])
		for _, f := range script.Files {
			if f.Name == m[2] {
				b.Write(f.Data)
			}
		}
		b.WriteByte('\n')
	}
	hash, err := hashFiles(root, []string{fitScript})
	return drawTerminal("kubectl plimsoll fit and preview", b.String(), hash), err
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
