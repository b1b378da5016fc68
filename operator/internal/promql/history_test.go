package promql

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSelectors(t *testing.T) {
	got := Selectors(`sum by (cluster) (free{model="a"} offset 5m) - max_over_time(free{model="a"}[1h:]) / rate(used[5m] @ 100) + vector(1)`)
	if d := cmp.Diff([]string{`free{model="a"}`, "used"}, got); d != "" {
		t.Error(d)
	}
	if got := Selectors("sum("); got != nil {
		t.Errorf("selectors of what does not parse: %v", got)
	}
}

func TestPinned(t *testing.T) {
	for expr, want := range map[string]string{
		"a - a offset 1d @ 100":           "",
		"a - a @ end()":                   "1:5: @ start() and @ end() mean other times over a range: leave them out",
		"max_over_time(a[1h:] @ start())": "1:15: @ start() and @ end() mean other times over a range: leave them out",
	} {
		if got := Strings(Pinned(expr)); got != want {
			t.Errorf("%s: got %q, want %q", expr, got, want)
		}
	}
}
