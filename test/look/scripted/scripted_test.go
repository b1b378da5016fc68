package scripted

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// Every alert about devices of the script fires, and the recorded numbers add up.
func TestRulesOverTheFleet(t *testing.T) {
	root := filepath.Join("..", "..", "..", "rules")
	start := time.Now()
	p, err := Open(t.Context(), NewCluster(time.Now()), t.TempDir(), RuleFiles(root), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	t.Log(time.Since(start))
	for _, expr := range []string{"sum by (alertname, alertstate) (ALERTS)", `{__name__=~"cluster.*"}`} {
		v, err := p.instant(context.Background(), expr, p.End())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range v.(promql.Vector) {
			t.Log(s.Metric, s.F)
		}
	}
}
