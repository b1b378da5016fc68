package rebalance

import (
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// The queries parse, and group by the label of the cluster.
func TestQueriesParse(t *testing.T) {
	for _, expr := range []string{FreeQuery("site"), AllocatedQuery("site")} {
		if problems := promql.Check(expr); problems != nil {
			t.Errorf("%s: %s", expr, promql.Strings(problems))
		}
		if !strings.Contains(expr, "by (site, node") || strings.Contains(expr, "cluster,") {
			t.Errorf("%s does not group by the label", expr)
		}
	}
}
