package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// TestQuickDemo runs `make demo QUICK=1` with the real exporter, after a run that was killed.
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
	killInTheMiddle(ctx, t, program, dir)
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
		"train-4        waits\n",
		"as kubectl plimsoll explain workload shows it on a hub",
		"Waits for:  no cluster has 8 free NVIDIA-H100-80GB-HBM3 on one node: best is cluster2 with 6",
		"Next:       metrics show free devices or quota; the gate looks every ",
		"The best total, not chosen: cluster3 is eligible; ",
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

// killInTheMiddle runs the demo, kills it once it has placed a job, and waits until its
// exporters have ended, too.
func killInTheMiddle(ctx context.Context, t *testing.T, program, dir string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, program, "--quick", "--dir", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "-> cluster") {
		continue
	}
	if started := programsIn(t, dir); len(started) < 13 { // the demo and 12 exporters
		t.Errorf("only %d programs run in the middle of the demo: %q", len(started), started)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // returns that the demo was killed
	err = fleet.Await(ctx, "the exporters to end", func(context.Context) error {
		if left := programsIn(t, dir); len(left) > 0 {
			return fmt.Errorf("%q still run", left)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// programsIn returns the command lines of all processes that name a folder.
func programsIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil && bytes.Contains(content, []byte(dir)) { // a process may end meanwhile
			found = append(found, string(content))
		}
	}
	return found
}
