package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func shares(ctx context.Context, s *stage) (string, error) {
	for _, shared := range []struct {
		cluster, node string
		used          map[string]int64 // MiB by pod; HAMi assigns them to different devices
	}{
		{"cluster1", "cluster1-hami", map[string]int64{"a": 60_000, "b": 60_000}},
		{"cluster2", "cluster2-hami", map[string]int64{"a": 80_000, "b": 40_000}},
	} {
		if err := s.addNode(ctx, shared.cluster, fleet.HAMiNode(shared.node, 2)); err != nil {
			return "", err
		}
		for name, mib := range shared.used {
			s.onEnd(func(ctx context.Context) error { return s.fleet.VacateAs(ctx, shared.cluster, shared.node, name) })
			if err := s.fleet.OccupyAs(ctx, shared.cluster, shared.node, name, map[corev1.ResourceName]int64{fleet.GPUResource: 1, fleet.HAMiMemory: mib}); err != nil {
				return "", err
			}
		}
		free := fmt.Sprintf(`sum(device_dimension:plimsoll_free_share:placeable{provider="hami",node=%q,dimension="memory"}) / 2^20`, shared.node)
		if err := s.awaitValue(ctx, free, float64(2*fleet.H100.MemoryMiB-120_000)); err != nil {
			return "", err
		}
	}
	s.log("HAMi shares 2 GPUs on each of two clusters, and 43,118 MiB of them are free on each")
	s.log("cluster1 has half of it on each GPU; cluster2 has 41,559 MiB on one")
	if err := s.createGatedQueue(ctx, fleet.SharesQueue); err != nil {
		return "", err
	}
	job := func(name string) fleet.Job {
		return fleet.Job{Name: name, Model: fleet.H100, GPUs: 1, Share: 40_000, Queue: fleet.SharesQueue.Name}
	}
	cluster, err := s.start(ctx, job("share-1"))
	if err != nil {
		return "", err
	}
	if cluster != "cluster2" {
		return "", fmt.Errorf("share-1 runs on %s, although only cluster2 has 40,000 MiB free on one GPU", cluster)
	}
	if err := s.submit(ctx, job("share-2")); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "share-2", "no cluster has room for 1 pod"); err != nil {
		return "", err
	}
	if err := s.fleet.VacateAs(ctx, "cluster1", "cluster1-hami", "a"); err != nil {
		return "", err
	}
	s.log("a pod with 60,000 MiB ends on cluster1")
	cluster, err = s.awaitRunning(ctx, "share-2")
	if err == nil && cluster != "cluster1" {
		err = fmt.Errorf("share-2 runs on %s, not on cluster1", cluster)
	}
	return "no job went to a cluster whose free memory was on two GPUs; share-2 started there when one GPU had room", err
}
