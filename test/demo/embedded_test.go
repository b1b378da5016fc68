package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestQuickDemo runs `make demo QUICK=1` with the real exporter.
func TestQuickDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the demo")
	}
	dir, err := os.MkdirTemp("", "plm") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--quick", "--dir", dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"cluster2  20         6            31", // 20 of 44 free H100s; 20 of 64 points
		"Not shown yet: Kueue, OCM and real API servers",
		"before the metrics showed the first one",
		"train-4        waits: no cluster has",
		"explain workload job/train-4",
		"no cluster has 8 free NVIDIA-H100-80GB-HBM3 on one node: best is cluster2 with 6",
		"train-4 waited; train-1 on cluster",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(out.String(), "-100  ") {
		t.Error("a table shows -100 although all clusters have metrics")
	}
	if t.Failed() {
		t.Log(&out)
	}
	left, err := os.ReadDir(filepath.Join(dir, "embedded", "work"))
	if err == nil {
		t.Errorf("the demo left %d files of its work folder", len(left))
	}
}
