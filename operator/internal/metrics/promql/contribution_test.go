package promql

import "testing"

func TestContribution(t *testing.T) {
	for _, tc := range []struct{ name, expr, want string }{
		{"selector", `sum by (cluster) (up{a="b"})`, `sum by (cluster) (label_replace(count by (cluster) (up{a="b"}), "selector", "0", "", ""))`},
		{"range and selector", `rate(x[5m] offset 1m) / y`, `sum by (cluster) (label_replace(count by (cluster) (count_over_time(x[5m] offset 1m)), "selector", "0", "", "") or ` +
			`label_replace(count by (cluster) (y), "selector", "1", "", ""))`},
		{"the same selector twice", `x - x`, `sum by (cluster) (label_replace(count by (cluster) (x), "selector", "0", "", ""))`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, problems := Contribution(tc.expr, "cluster")
			if problems != nil || got != tc.want {
				t.Errorf("%s:\n got %s %s\nwant %s", tc.expr, got, Strings(problems), tc.want)
			}
			if p := Check(got); p != nil {
				t.Errorf("%s: %s", got, Strings(p))
			}
		})
	}
	if _, problems := Contribution("vector(1)", "cluster"); problems == nil {
		t.Error("vector(1) reads no series")
	}
}
