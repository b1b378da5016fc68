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

// What promtool finds fault with are the names that dcgm-exporter gave, one by one
// as METRICS.md lists them; with ours it finds none, nor with the process's own.
func TestPromtoolFindsNoFaultWithOurNames(t *testing.T) {
	out, err := exec.Command("go", "run", "../../../test/lab", "path", "promtool").Output()
	if err != nil {
		t.Fatal(err)
	}
	promtool := strings.TrimSpace(string(out))
	catalog, err := os.ReadFile("../../METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(DCGM_[A-Z0-9_]+)`").FindAllSubmatch(catalog, -1) {
		theirs[string(row[1])] = true
	}
	for _, scenario := range sim.Scenarios() {
		p := start(t, command(t, "--source=sim", "--sim-scenario="+scenario))
		text := p.until("/metrics", http.StatusOK, "plimsoll_exporter_last_collection_timestamp_seconds{")
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		var faults bytes.Buffer
		check.Stdout, check.Stderr = &faults, &faults
		var exit *exec.ExitError
		if err := check.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
			t.Fatalf("%s: %v\n%s", scenario, err, &faults)
		}
		for line := range strings.Lines(faults.String()) {
			if name, _, _ := strings.Cut(line, " "); !theirs[name] {
				t.Errorf("%s: %s", scenario, line)
			}
		}
	}
}
