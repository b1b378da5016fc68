//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Pods share the GPUs of two nodes. On cluster1, a GPU is used at 90%: the rules report that its pods
// disturb each other, and the sample policy slowdown prefers cluster2.
func TestInterferenceLowersTheScore(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	for _, shared := range []struct {
		cluster string
		node    fleet.Node
		exposed float64
	}{
		{"cluster1", fleet.SharedNode("cluster1-busy", 0.9, 0.1), 1},
		{"cluster2", fleet.SharedNode("cluster2-busy", 0.1, 0.1), 0},
	} {
		name := shared.node.Name
		addNode(ctx, t, shared.cluster, shared.node)
		for _, pod := range []string{"a", "b"} { // each has a replica of both GPUs
			t.Cleanup(func() {
				cleanUp(t, func(ctx context.Context) error { return lab.VacateAs(ctx, shared.cluster, name, pod) })
			})
			if err := lab.OccupyAs(ctx, shared.cluster, name, pod, map[corev1.ResourceName]int64{fleet.SharedGPUResource: 2}); err != nil {
				t.Fatal(err)
			}
		}
		awaitValue(ctx, t, fmt.Sprintf(`count(device:plimsoll_interference_exposure:bool{node=%q})`, name), 2)
		awaitValue(ctx, t, fmt.Sprintf(`sum(device:plimsoll_interference_exposure:bool{node=%q})`, name), shared.exposed)
	}
	t.Cleanup(func() { deleteObjects(t, "scoringpolicy/slowdown") })
	if err := lab.ApplySample(ctx, "cookbook/slowdown.yaml"); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the scores of the policy slowdown", func(ctx context.Context) error {
		scores := map[string]int32{}
		for _, w := range lab.Workers {
			s, err := lab.Scores(ctx, "slowdown", w.Name)
			if err != nil {
				return err
			}
			total, ok := s["total"]
			if !ok {
				return fmt.Errorf("%s has the scores %v", w.Name, s)
			}
			scores[w.Name] = total
		}
		if scores["cluster2"] != 100 || scores["cluster1"] > 75 || scores["cluster1"] < 50 || scores["cluster3"] != -100 {
			return fmt.Errorf("scores %v, want 100 for cluster2, about 64 for cluster1, and -100 for cluster3, which shares no GPU", scores)
		}
		return nil
	})
}
