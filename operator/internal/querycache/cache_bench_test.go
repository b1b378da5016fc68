package querycache

import (
	"fmt"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// A decision's answers when all of them are held.
func BenchmarkAnswersHeld(b *testing.B) {
	for _, clusters := range []int{2, 20} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			t := newFixture(v1alpha1.PlacementGateSpec{})
			t.facts.Remote, t.facts.ClusterQueue = true, "cq"
			t.gate.Clusters = nil
			var values []any
			for i := range clusters {
				name := fmt.Sprintf("cluster%d", i+1)
				t.gate.Clusters = append(t.gate.Clusters, registry.Cluster{Name: name})
				values = append(values, name, 3.0)
			}
			t.source.responses["("] = series(values...)
			t.Results(b.Context(), t.gate, t.facts)
			b.ReportAllocs()
			for b.Loop() {
				t.Results(b.Context(), t.gate, t.facts)
			}
		})
	}
}
