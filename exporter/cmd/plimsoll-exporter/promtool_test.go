//go:build integration

package main

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

// promtool may only report dcgm-exporter's metrics, which METRICS.md lists. Plimsoll's
// metrics and those of the process must pass.
func TestPromtoolAcceptsPlimsollMetrics(t *testing.T) {
	out, err := exec.Command("go", "run", "../../../test/lab", "path", "promtool").Output()
	if err != nil {
		t.Fatal(err)
	}
	promtool := strings.TrimSpace(string(out))
	catalog, err := os.ReadFile("../../METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	dcgmMetrics := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(DCGM_[A-Z0-9_]+)`").FindAllSubmatch(catalog, -1) {
		dcgmMetrics[string(row[1])] = true
	}
	for _, scenario := range sim.Scenarios() {
		p := start(t, command(t, "--source=sim", "--sim-scenario="+scenario))
		text := p.waitFor("/metrics", http.StatusOK, "plimsoll_exporter_last_collection_timestamp_seconds{")
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		var problems bytes.Buffer
		check.Stdout, check.Stderr = &problems, &problems
		var exit *exec.ExitError
		if err := check.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
			t.Fatalf("%s: %v\n%s", scenario, err, &problems)
		}
		for line := range strings.Lines(problems.String()) {
			if name, _, _ := strings.Cut(line, " "); !dcgmMetrics[name] {
				t.Errorf("%s: %s", scenario, line)
			}
		}
	}
}
