package contract

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// With DRA, no accelerators are in the capacity of a node. The alert counts such a node, so the
// runbook finds it.
func TestRunbookFindsSilentNodesWithDRA(t *testing.T) {
	storage := promqltest.LoadedStorage(t, `load 1m
  node:kube_accelerators:sum{cluster="c",node="trusted"} 8x10
  node:plimsoll_expected:info{cluster="c",node="trusted"} 1x10
  node:plimsoll_expected:info{cluster="c",node="dra"} 1x10
  node:plimsoll_expected:info{cluster="d",node="trusted"} 1x10
  node:plimsoll_sample_timestamp_seconds:trusted{cluster="c",node="trusted"} 600x10
`)
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 1000, Timeout: time.Minute})
	for _, e := range runbookExpressions(t) {
		if e.where != "PlimsollExporterAbsent.md" {
			continue
		}
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, e.expr, time.Unix(600, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer query.Close()
		vector, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, s := range vector {
			found[s.Metric.Get("cluster")+"/"+s.Metric.Get("node")] = true
		}
		if len(found) != 2 || !found["c/dra"] || !found["d/trusted"] {
			t.Errorf("%s finds %v, want c/dra and d/trusted", e.expr, found)
		}
		return // The first expression finds the nodes, the others the step that fails.
	}
	t.Error("the runbook has no expression")
}
