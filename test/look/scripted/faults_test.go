//go:build long

package scripted

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func TestFleet(t *testing.T) {
	p := open(t, NewFleet(time.Now()))
	t.Run("RecordingRules", func(t *testing.T) { checkRecordingRules(t, p, nil) })
	t.Run("TenFaults", func(t *testing.T) { checkTenFaults(t, p) })
}

// checkTenFaults checks that each fault of the fleet fires the alert that rules/ten-faults.md
// names.
func checkTenFaults(t *testing.T, p *Prometheus) {
	text, err := os.ReadFile(filepath.Join(rulesFolder, "ten-faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| \[(Plimsoll\w+)\]\([^)]+\), (critical|warning|info), `).FindAllStringSubmatch(string(text), -1)
	if len(rows) != 10 {
		t.Fatalf("the document has %d faults", len(rows))
	}
	for _, row := range rows {
		if len(p.query(t, `ALERTS{alertstate="firing",alertname="`+row[2]+`",severity="`+row[3]+`"}`)) == 0 {
			t.Errorf("%s: %s does not fire with severity %s", row[1], row[2], row[3])
		}
	}
}
