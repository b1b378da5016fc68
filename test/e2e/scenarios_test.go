//go:build e2e && long

package e2e

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/scenario"
)

func init() { hasLongTests = true }

// TestScenarios runs every scenario of `lab scenario`.
func TestScenarios(t *testing.T) {
	for _, s := range scenario.All {
		t.Run(s.Name, func(t *testing.T) {
			outcome, err := s.Run(testContext(t, 10*time.Minute), lab, t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(outcome)
		})
	}
}
