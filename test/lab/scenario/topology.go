package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

func topology(s *script) string {
	for _, block := range []struct {
		cluster, name string
		nodes         []string
	}{
		{"cluster1", "a", []string{"cluster1-gpu0"}},
		{"cluster1", "b", []string{"cluster1-gpu1"}},
		{"cluster2", "a", []string{"cluster2-gpu0", "cluster2-gpu1", "cluster2-gpu2", "cluster2-gpu3"}},
		{"cluster3", "a", []string{"cluster3-gpu0"}},
	} {
		for _, node := range block.nodes {
			s.onEnd(func(ctx context.Context) error {
				return s.fleet.LabelNode(ctx, block.cluster, node, fleet.BlockLabel, "")
			})
			story.Must(s.fleet.LabelNode(s.ctx, block.cluster, node, fleet.BlockLabel, block.name))
		}
	}
	s.log("the two H100 nodes of cluster1 are in different blocks, the four of cluster2 in one")
	s.shows(`count(node:plimsoll_topology:info{level="`+fleet.BlockLabel+`"})`, 7)
	s.createsGatedQueue(fleet.TopologyQueue)
	near := func(name string) fleet.Job {
		return fleet.Job{Name: name, Model: fleet.H100, GPUs: 4, Pods: 4, Queue: fleet.TopologyQueue.Name, RequiredTopology: fleet.BlockLabel}
	}
	s.startsOn(near("near-1"), "cluster2")
	s.submits(near("near-2"))
	s.waits("near-2", "no cluster has room for 4 pods")
	story.Must(s.fleet.LabelNode(s.ctx, "cluster1", "cluster1-gpu1", fleet.BlockLabel, "a"))
	s.log("cluster1-gpu1 moves to the block of cluster1-gpu0")
	s.runsOn("near-2", "cluster1")
	return "no job went to 16 free GPUs in two blocks of 8; near-2 started there when they were in one"
}

func tpuSlice(s *script) string {
	pools := map[string][]string{"cluster1": {"a", "a"}, "cluster2": {"b", "b", "c", "c"}}
	for _, cluster := range []string{"cluster1", "cluster2"} {
		for i, pool := range pools[cluster] {
			s.addsNode(cluster, fleet.Node{Name: fmt.Sprintf("%s-tpu%d", cluster, i), Model: fleet.TPUv6e, GPUs: 4, Topology: "2x4", NodePool: pool})
		}
	}
	for _, node := range []string{"cluster2-tpu1", "cluster2-tpu3"} {
		s.occupies("cluster2", node, 4)
	}
	s.log("cluster1 has a free slice of 8 chips; the 8 free chips of cluster2 are halves of two slices")
	for _, cluster := range []string{"cluster1", "cluster2"} {
		s.shows(fmt.Sprintf(`sum(node_resource_model:plimsoll_free_devices:placeable{cluster=%q,resource="google.com/tpu"})`, cluster), 8)
	}
	s.createsGatedQueue(fleet.TPUQueue)
	onSlice := func(name string) fleet.Job {
		return fleet.Job{Name: name, Model: fleet.TPUv6e, GPUs: 4, Pods: 2, Queue: fleet.TPUQueue.Name, TPUTopology: "2x4"}
	}
	s.startsOn(onSlice("slice-1"), "cluster1")
	s.submits(onSlice("slice-2"))
	s.waits("slice-2", "no cluster has room for 2 pods")
	s.occupies("cluster2", "cluster2-tpu2", 4)
	story.Must(s.fleet.Vacate(s.ctx, "cluster2", "cluster2-tpu1"))
	s.log("a pod moves from cluster2-tpu1 to cluster2-tpu2: the 8 free chips are one slice")
	s.runsOn("slice-2", "cluster2")
	return "no job went to 8 free chips of two slices; slice-2 started there when they were one slice"
}
