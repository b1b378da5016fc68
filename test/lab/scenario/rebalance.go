package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// rebalance needs the only node of cluster3 with H100 GPUs for a large job. A small job runs there, and
// cluster2 has room for it.
func rebalance(ctx context.Context, s *stage) (string, error) {
	s.deleteAtEnd("reclaimpolicy/rebalance")
	s.onEnd(func(ctx context.Context) error { return s.fleet.PatchGate(ctx, `{"hold":null}`) })
	if err := s.fleet.PatchGate(ctx, `{"hold":{"afterSeconds":3}}`); err != nil {
		return "", err
	}
	if err := s.fleet.CreatePriorities(ctx); err != nil {
		return "", err
	}
	if err := s.createQueue(ctx, fleet.GPUQueue{Name: "rebalance", Hub: 256, Worker: 256}); err != nil {
		return "", err
	}
	if err := s.occupyAllBut(ctx, "cluster3-gpu0"); err != nil {
		return "", err
	}
	small := fleet.Job{Name: "small", Model: fleet.H100, GPUs: 2, Queue: "rebalance", Priority: "low", PodLabels: map[string]string{v1alpha1.ReclaimableLabel: "true"}}
	from, err := s.start(ctx, small)
	if err != nil {
		return "", err
	}
	if err := s.fleet.Vacate(ctx, "cluster2", "cluster2-gpu2"); err != nil {
		return "", err
	}
	if err := s.awaitFree(ctx, "cluster2", fleet.H100, 6); err != nil {
		return "", err
	}
	s.log("cluster2 has 6 free GPUs")
	if err := s.submit(ctx, fleet.Job{Name: "large", Model: fleet.H100, GPUs: 8, Queue: "rebalance", Priority: "high"}); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "large", "best is"); err != nil {
		return "", err
	}
	if err := s.fleet.Hub.Apply(ctx, fleet.Rebalance(v1alpha1.ModeEnforce)); err != nil {
		return "", err
	}
	err = s.awaitView(ctx, "small", "to leave "+from, func(v fleet.JobView) bool { return v.Cluster != from && len(v.Copies) == 0 })
	if err != nil {
		return "", err
	}
	s.log("small has left %s", from)
	large, err := s.awaitRunning(ctx, "large")
	if err != nil {
		return "", err
	}
	to, err := s.awaitRunning(ctx, "small")
	if err == nil && (large != from || to == from) {
		err = fmt.Errorf("large runs on %s and small on %s; want large on %s, which small left", large, to, from)
	}
	return fmt.Sprintf("small moved from %s to %s, and large started on %s", from, to, large), err
}

// occupyAllBut uses all H100 GPUs of the fleet with pods outside of Kueue's queues, except those of a
// node, until the end.
func (s *stage) occupyAllBut(ctx context.Context, kept string) error {
	for _, w := range fleet.DefaultWorkers() {
		for _, n := range w.Nodes {
			if n.Model != fleet.H100 || n.Name == kept {
				continue
			}
			s.onEnd(func(ctx context.Context) error { return s.fleet.Vacate(ctx, w.Name, n.Name) })
			if err := s.fleet.Occupy(ctx, w.Name, n.Name, n.GPUs); err != nil {
				return err
			}
		}
	}
	return s.awaitFree(ctx, ".+", fleet.H100, 8)
}
