//go:build long

package scripted

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// rules/ten-faults.md says which alert each fault of the fleet fires.
func TestTenFaults(t *testing.T) {
	root := filepath.Join("..", "..", "..", "rules")
	text, err := os.ReadFile(filepath.Join(root, "ten-faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| \[(Plimsoll\w+)\]\([^)]+\), (critical|warning|info), `).FindAllStringSubmatch(string(text), -1)
	if len(rows) != 10 {
		t.Fatalf("the document has %d faults", len(rows))
	}
	p, err := Open(t.Context(), NewFleet(time.Now()), t.TempDir(), RuleFiles(root), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	for _, row := range rows {
		result, err := p.instant(t.Context(), `ALERTS{alertstate="firing",alertname="`+row[2]+`",severity="`+row[3]+`"}`, p.End())
		if err != nil {
			t.Fatal(err)
		}
		if len(result.(promql.Vector)) == 0 {
			t.Errorf("%s: %s does not fire with severity %s", row[1], row[2], row[3])
		}
	}
}
