package workload

import (
	"slices"
	"strings"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// A workload that fits on no member of the MultiKueueConfig, but on another decided cluster,
// requests that cluster from the gate and says so. It is sent there once it is a member.
func TestWorkloadRequestsAClusterOutsideTheConfiguration(t *testing.T) {
	for _, tc := range []struct {
		name      string
		room      map[string]float64
		change    func(*bench, *kueue.Workload)
		requested []string
	}{
		{"no member has room", map[string]float64{"cluster1": 0, "cluster2": 0, "cluster3": 9}, nil, []string{"cluster3"}},
		{"a member has room", map[string]float64{"cluster1": 0, "cluster2": 9, "cluster3": 9}, nil, nil},
		{"no cluster has room", map[string]float64{"cluster1": 0, "cluster2": 0, "cluster3": 0}, nil, nil},
		{"the configuration is not the gate's", map[string]float64{"cluster1": 0, "cluster2": 0, "cluster3": 9}, func(b *bench, _ *kueue.Workload) {
			b.putGate(func(g *gatestate.Gate) { g.Spec.MultiKueue = nil })
		}, nil},
		{"Kueue dispatches", map[string]float64{"cluster1": 0, "cluster2": 0, "cluster3": 9}, func(b *bench, _ *kueue.Workload) { b.engine.Nominates = false }, nil},
		{"the user forbids it", map[string]float64{"cluster1": 0, "cluster2": 0, "cluster3": 9}, func(_ *bench, wl *kueue.Workload) {
			wl.Annotations = map[string]string{"kueue.x-k8s.io/multikueue-cluster-names": "cluster1"}
		}, nil},
		{"the only one with room is about to leave", map[string]float64{"cluster1": 9, "cluster2": 0, "cluster3": 0}, func(b *bench, _ *kueue.Workload) {
			b.putGate(func(g *gatestate.Gate) { g.Clusters[0].Leaving = true })
		}, []string{"cluster1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{MultiKueue: &v1alpha1.GateMultiKueue{ConfigName: "gpu"}})
			b.putGate(func(g *gatestate.Gate) { g.Clusters = append(g.Clusters, gatestate.Cluster{Name: "cluster3"}) })
			b.room(tc.room)
			wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
			if tc.change != nil {
				tc.change(b, wl)
			}
			b.create(wl)
			b.reconcile()
			if got := b.engine.Registry.RequestedClusters("gpu", b.now()); !slices.Equal(got, tc.requested) {
				t.Errorf("requested %v, want %v (%s)", got, tc.requested, b.check().Message)
			}
			if len(tc.requested) == 0 {
				return
			}
			if c := b.check(); c.State != kueue.CheckStatePending || !strings.HasPrefix(c.Message, tc.requested[0]+" has room and joins the MultiKueueConfig") {
				t.Errorf("%s %q", c.State, c.Message)
			}
			b.configure("cluster1", "cluster2", "cluster3")
			b.connect("cluster3", b.now())
			b.putGate(func(g *gatestate.Gate) { g.Clusters[0].Leaving = false })
			b.wakeUp()
			if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, tc.requested) {
				t.Errorf("nominated %v, want %v", got, tc.requested)
			}
		})
	}
}
