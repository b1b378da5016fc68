//go:build e2e && long

package e2e

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// TestPrintedCommands runs the commands that `make demo KEEP=1` and `lab up` print at
// their end, in one shell, except for the one that ends the fleet.
func TestPrintedCommands(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "hinted", Model: fleet.H100, GPUs: 1})
	cluster := awaitRunning(ctx, t, "hinted")
	script := []string{"set -euo pipefail"}
	for _, line := range strings.Split(lab.Hints("hinted"), "\n") {
		command, isCommand := strings.CutPrefix(line, "  ")
		if isCommand && !strings.Contains(command, " down ") {
			script = append(script, command)
		}
	}
	if len(script) < 8 {
		t.Fatalf("the hints have %d commands:\n%s", len(script)-1, lab.Hints("hinted"))
	}
	out := runCommand(ctx, t, nil, "bash", "-c", strings.Join(script, "\n"))
	if strings.Contains(out, "Not shown") {
		t.Errorf("explain reaches no operator:\n%s", out)
	}
	checkContains(t, out,
		"job-hinted", "cluster3", // get workloads, get addonplacementscores
		outputPlaced(cluster), outputHeadroomScore, // explain, top
		"plimsoll-operator", "exporter-cluster1-gpu0", "running") // status
}
