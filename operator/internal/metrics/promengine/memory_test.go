package promengine

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

func TestMemory(t *testing.T) {
	start := time.Unix(1000, 0)
	m := NewMemory()
	up, down := labels.FromStrings("__name__", "up", "node", "n1"), labels.FromStrings("__name__", "down", "node", "n1")
	for i := range 5 {
		at := start.Add(time.Duration(i) * time.Second)
		if err := m.Store(t.Context(), at, []Sample{{up, float64(i)}, {down, -1}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, late := range []time.Time{start, start.Add(4 * time.Second)} {
		if err := m.Append(up, late, 1, nil); err == nil || !strings.Contains(err.Error(), `{__name__="up", node="n1"} already has`) {
			t.Errorf("Append of a sample that is not the latest returned %v, want an error with the series", err)
		}
	}
	if !m.Contains(up) || m.Contains(labels.FromStrings("__name__", "up", "node", "n2")) {
		t.Error("Contains does not match the stored series")
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1000, Timeout: time.Minute})
	query := func(expr string, after time.Duration) float64 {
		t.Helper()
		result, err := Query(t.Context(), engine, m, expr, start.Add(after))
		if err != nil || len(result.Samples) != 1 {
			t.Fatalf("%s returned %v (%v), want one sample", expr, result.Samples, err)
		}
		return result.Samples[0].Value
	}
	for _, c := range []struct {
		expr  string
		after time.Duration
		want  float64
	}{
		{`up`, 2 * time.Second, 2},
		{`up`, time.Minute, 4},
		{`sum_over_time(up[2s])`, 3 * time.Second, 2 + 3}, // a range excludes its start
		{`sum({__name__=~"up|down"})`, time.Second, 0},
		{`count(up{node!="n1"}) or vector(7)`, time.Second, 7},
	} {
		if got := query(c.expr, c.after); got != c.want {
			t.Errorf("%s after %s is %g, want %g", c.expr, c.after, got, c.want)
		}
	}
	m.DropBefore(start.Add(3 * time.Second))
	if got := query(`sum_over_time(up[1m])`, 4*time.Second); got != 3+4 {
		t.Errorf("the sum is %g, want that of the samples that were kept", got)
	}
	m.HideAfter(start.Add(3 * time.Second))
	if got := query(`up`, time.Minute); got != 3 {
		t.Errorf("up is %g although the sample is hidden, want 3", got)
	}
	if m.DropBefore(start.Add(time.Hour)); m.Contains(up) {
		t.Error("a series without samples stays")
	}
	if err := m.Append(up, start.Add(2*time.Hour), 1, nil); err != nil {
		t.Error(err)
	}
}
