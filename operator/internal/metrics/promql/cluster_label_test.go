package promql

import (
	"strings"
	"testing"
)

func TestExpandClusterLabel(t *testing.T) {
	for _, tc := range []struct{ expr, label, want string }{
		{`sum by (cluster) (x)`, "site", `sum by (cluster) (x)`},
		{`sum by ($cluster_label) (x)`, "cluster", `sum by (cluster) (x)`},
		{"a * on ($cluster_label)\n max by ($cluster_label, node) (b)", "k8s_cluster_name", "a * on (k8s_cluster_name)\n max by (k8s_cluster_name, node) (b)"},
		{`label_replace(x, "$cluster_label", "$1", "c", "(.*)")`, "site", `label_replace(x, "site", "$1", "c", "(.*)")`},
		{`$cluster_labels`, "site", `$cluster_labels`},
	} {
		got, source := ExpandClusterLabel(tc.expr, tc.label)
		if got != tc.want {
			t.Errorf("%s: got %s", tc.expr, got)
		}
		// Text outside of the variables has the same position in both.
		for i := range got {
			if s := source(i); s < len(tc.expr) && tc.expr[s] != got[i] && !strings.HasPrefix(tc.expr[s:], "$cluster_label") {
				t.Errorf("%s: offset %d (%c) is %d (%c)", tc.expr, i, got[i], s, tc.expr[s])
			}
		}
		if end := source(len(got)); end != len(tc.expr) {
			t.Errorf("%s: the end is %d", tc.expr, end)
		}
	}
}
