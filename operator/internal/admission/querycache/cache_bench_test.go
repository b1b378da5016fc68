package querycache

import (
	"fmt"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
)

// BenchmarkResultsCached measures the results of a decision if all of them are cached.
func BenchmarkResultsCached(b *testing.B) {
	for _, clusters := range []int{2, 20} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			f := newFixture(v1alpha1.PlacementGateSpec{})
			f.facts.Remote, f.facts.ClusterQueue = true, "cq"
			f.gate.Clusters = nil
			var values []any
			for i := range clusters {
				name := fmt.Sprintf("cluster%d", i+1)
				f.gate.Clusters = append(f.gate.Clusters, gatestate.Cluster{Name: name})
				values = append(values, name, 3.0)
			}
			f.source.responses["("] = series(values...)
			f.Candidates(b.Context(), f.gate, f.facts)
			b.ReportAllocs()
			for b.Loop() {
				f.Candidates(b.Context(), f.gate, f.facts)
			}
		})
	}
}
