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
		t.Errorf("selectors of an expression that does not parse: %v", got)
	}
}

func TestPinned(t *testing.T) {
	for _, tc := range []struct{ name, expr, want string }{
		{"fixed time", "a - a offset 1d @ 100", ""},
		{"selector", "a - a @ end()", "1:5: @ start() and @ end() have another meaning in a range query: remove them"},
		{"subquery", "max_over_time(a[1h:] @ start())", "1:15: @ start() and @ end() have another meaning in a range query: remove them"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Strings(Pinned(tc.expr)); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.expr, got, tc.want)
			}
		})
	}
}
