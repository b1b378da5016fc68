package scenario

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

// rebalance needs the only node of cluster3 with H100 GPUs for a large job. A small job runs there, and
// cluster2 has room for it.
func rebalance(s *script) string {
	const from, to, node = "cluster3", "cluster2", "cluster2-gpu2"
	s.deleteAtEnd("reclaimpolicy/rebalance")
	s.patchesGate(`{"hold":{"afterSeconds":3}}`, `{"hold":null}`)
	story.Must(s.fleet.CreatePriorities(s.ctx))
	s.createsQueue(fleet.GPUQueue{Name: "rebalance", Hub: 256, Worker: 256})
	s.occupiesAllBut("cluster3-gpu0")
	s.startsOn(fleet.Job{Name: "small", Model: fleet.H100, GPUs: 2, Queue: "rebalance", Priority: "low", PodLabels: map[string]string{v1alpha1.ReclaimableLabel: "true"}}, from)
	s.hasFree(from, fleet.H100, 6)
	s.submits(fleet.Job{Name: "large", Model: fleet.H100, GPUs: 8, Queue: "rebalance", Priority: "high"})
	s.waits("large", "best is")

	s.applies(fleet.Rebalance(v1alpha1.ModeShadow))
	s.reclaims("rebalance", "to find no other cluster with room", func(status *v1alpha1.ReclaimPolicyStatus) bool {
		return len(status.Moves) == 1 && status.Moves[0].State == v1alpha1.MoveNone && strings.Contains(status.Moves[0].Reason, "fits on no other cluster")
	})
	story.Must(s.fleet.Vacate(s.ctx, to, node))
	s.log("cluster2 has 6 free GPUs")
	s.reclaims("rebalance", "to record in mode Shadow that small would move", func(status *v1alpha1.ReclaimPolicyStatus) bool {
		if len(status.Moves) != 1 || len(status.History) != 1 {
			return false
		}
		m, r := status.Moves[0], status.History[0]
		return m.State == v1alpha1.MoveRecorded && isOf(m.For, "large") && m.Cluster == from &&
			isOf(r.Name, "small") && r.Cluster == from && r.Devices == 2 && r.Move != nil && r.Move.To == to
	})
	s.staysOn("small", from)

	s.applies(fleet.Rebalance(v1alpha1.ModeEnforce))
	s.sees("small", "to leave "+from, func(v fleet.JobView) bool { return v.Cluster != from && len(v.Copies) == 0 })
	s.log("small has left %s", from)
	s.runsOn("large", from)
	s.runsOn("small", to)
	s.requireEvent("Rebalanced ReclaimPolicy rebalance returns it to its queue: ")
	s.requireRecord("small", fmt.Sprintf(`{"cluster":%q,"avoid":true,`, from))
	return fmt.Sprintf("small moved from %s to %s, and large started on %s", from, to, from)
}

// occupiesAllBut uses all H100 GPUs of the fleet with pods outside of Kueue's queues, except the 8 of a
// node, until the end.
func (s *script) occupiesAllBut(kept string) {
	for _, w := range fleet.DefaultWorkers() {
		for _, n := range w.Nodes {
			if n.Model == fleet.H100 && n.Name != kept {
				s.occupies(w.Name, n.Name, n.GPUs)
			}
		}
	}
	s.hasFree(".+", fleet.H100, 8)
}

// reclaims waits until the status of a ReclaimPolicy is as wanted.
func (s *script) reclaims(policy, what string, want func(*v1alpha1.ReclaimPolicyStatus) bool) {
	s.await("ReclaimPolicy "+policy+" "+what, func(ctx context.Context) error {
		p := &v1alpha1.ReclaimPolicy{}
		err := s.fleet.Hub.Client.Get(ctx, client.ObjectKey{Name: policy}, p)
		if err == nil && !want(&p.Status) {
			err = fmt.Errorf("its status is %+v", p.Status)
		}
		return err
	})
}

// isOf reports whether a Workload is that of a job.
func isOf(workload, job string) bool { return strings.Contains(workload, "job-"+job+"-") }
