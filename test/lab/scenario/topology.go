package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func topology(ctx context.Context, s *stage) (string, error) {
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
			if err := s.fleet.LabelNode(ctx, block.cluster, node, fleet.BlockLabel, block.name); err != nil {
				return "", err
			}
		}
	}
	s.log("the two H100 nodes of cluster1 are in different blocks, the four of cluster2 in one")
	if err := s.awaitValue(ctx, `count(node:plimsoll_topology:info{level="`+fleet.BlockLabel+`"})`, 7); err != nil {
		return "", err
	}
	if err := s.createGatedQueue(ctx, fleet.TopologyQueue); err != nil {
		return "", err
	}
	near := func(name string) fleet.Job {
		return fleet.Job{Name: name, Model: fleet.H100, GPUs: 4, Pods: 4, Queue: fleet.TopologyQueue.Name, RequiredTopology: fleet.BlockLabel}
	}
	cluster, err := s.start(ctx, near("near-1"))
	if err != nil {
		return "", err
	}
	if cluster != "cluster2" {
		return "", fmt.Errorf("near-1 runs on %s, although only cluster2 has room for its 4 pods in one block", cluster)
	}
	if err := s.submit(ctx, near("near-2")); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "near-2", "no cluster has room for 4 pods"); err != nil {
		return "", err
	}
	if err := s.fleet.LabelNode(ctx, "cluster1", "cluster1-gpu1", fleet.BlockLabel, "a"); err != nil {
		return "", err
	}
	s.log("cluster1-gpu1 moves to the block of cluster1-gpu0")
	cluster, err = s.awaitRunning(ctx, "near-2")
	if err == nil && cluster != "cluster1" {
		err = fmt.Errorf("near-2 runs on %s, not on cluster1", cluster)
	}
	return "no job went to 16 free GPUs in two blocks of 8; near-2 started there when they were in one", err
}

func tpuSlice(ctx context.Context, s *stage) (string, error) {
	pools := map[string][]string{"cluster1": {"a", "a"}, "cluster2": {"b", "b", "c", "c"}}
	for _, cluster := range []string{"cluster1", "cluster2"} {
		for i, pool := range pools[cluster] {
			node := fleet.Node{Name: fmt.Sprintf("%s-tpu%d", cluster, i), Model: fleet.TPUv6e, GPUs: 4, Topology: "2x4", NodePool: pool}
			if err := s.addNode(ctx, cluster, node); err != nil {
				return "", err
			}
		}
	}
	for _, node := range []string{"cluster2-tpu1", "cluster2-tpu3"} {
		if err := s.occupy(ctx, "cluster2", node, 4); err != nil {
			return "", err
		}
	}
	s.log("cluster1 has a free slice of 8 chips; the 8 free chips of cluster2 are halves of two slices")
	free := func(cluster string) string {
		return fmt.Sprintf(`sum(node_resource_model:plimsoll_free_devices:placeable{cluster=%q,resource="google.com/tpu"})`, cluster)
	}
	for _, cluster := range []string{"cluster1", "cluster2"} {
		if err := s.awaitValue(ctx, free(cluster), 8); err != nil {
			return "", err
		}
	}
	if err := s.createGatedQueue(ctx, fleet.TPUQueue); err != nil {
		return "", err
	}
	onSlice := func(name string) fleet.Job {
		return fleet.Job{Name: name, Model: fleet.TPUv6e, GPUs: 4, Pods: 2, Queue: fleet.TPUQueue.Name, TPUTopology: "2x4"}
	}
	cluster, err := s.start(ctx, onSlice("slice-1"))
	if err != nil {
		return "", err
	}
	if cluster != "cluster1" {
		return "", fmt.Errorf("slice-1 runs on %s, although only cluster1 has a free slice", cluster)
	}
	if err := s.submit(ctx, onSlice("slice-2")); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "slice-2", "no cluster has room for 2 pods"); err != nil {
		return "", err
	}
	if err := s.occupy(ctx, "cluster2", "cluster2-tpu2", 4); err != nil {
		return "", err
	}
	if err := s.fleet.Vacate(ctx, "cluster2", "cluster2-tpu1"); err != nil {
		return "", err
	}
	s.log("a pod moves from cluster2-tpu1 to cluster2-tpu2: the 8 free chips are one slice")
	cluster, err = s.awaitRunning(ctx, "slice-2")
	if err == nil && cluster != "cluster2" {
		err = fmt.Errorf("slice-2 runs on %s, not on cluster2", cluster)
	}
	return "no job went to 8 free chips of two slices; slice-2 started there when they were one slice", err
}
