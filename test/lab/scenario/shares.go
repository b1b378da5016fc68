package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

func shares(s *script) string {
	for _, shared := range []struct {
		cluster, node string
		used          map[string]int64 // MiB by pod; HAMi assigns them to different devices
	}{
		{"cluster1", "cluster1-hami", map[string]int64{"a": 60_000, "b": 60_000}},
		{"cluster2", "cluster2-hami", map[string]int64{"a": 80_000, "b": 40_000}},
	} {
		s.addsNode(shared.cluster, fleet.HAMiNode(shared.node, 2))
		for name, mib := range shared.used {
			s.onEnd(func(ctx context.Context) error { return s.fleet.VacateAs(ctx, shared.cluster, shared.node, name) })
			story.Must(s.fleet.OccupyAs(s.ctx, shared.cluster, shared.node, name, map[corev1.ResourceName]int64{fleet.GPUResource: 1, fleet.HAMiMemory: mib}))
		}
		s.shows(fmt.Sprintf(`sum(device_dimension:plimsoll_free_share:placeable{provider="hami",node=%q,dimension="memory"}) / 2^20`, shared.node), float64(2*fleet.H100.MemoryMiB-120_000))
	}
	s.log("HAMi shares 2 GPUs on each of two clusters, and 43,118 MiB of them are free on each")
	s.log("cluster1 has half of it on each GPU; cluster2 has 41,559 MiB on one")
	s.createsGatedQueue(fleet.SharesQueue)
	job := func(name string) fleet.Job {
		return fleet.Job{Name: name, Model: fleet.H100, GPUs: 1, Share: 40_000, Queue: fleet.SharesQueue.Name}
	}
	s.startsOn(job("share-1"), "cluster2")
	s.submits(job("share-2"))
	s.waits("share-2", "no cluster has room for 1 pod")
	story.Must(s.fleet.VacateAs(s.ctx, "cluster1", "cluster1-hami", "a"))
	s.log("a pod with 60,000 MiB ends on cluster1")
	s.runsOn("share-2", "cluster1")
	return "no job went to a cluster whose free memory was on two GPUs; share-2 started there when one GPU had room"
}
