package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func packing(ctx context.Context, s *stage) (string, error) {
	const half, even = "cluster1-shared", "cluster2-shared"
	for _, shared := range []struct {
		cluster     string
		node        fleet.Node
		pods        int // that other queues run, one on each device
		lowDevices  int
		description string
	}{
		{"cluster1", fleet.SharedNode(half, 1, 1, 0, 0), 2, 2, "2 at 100%, 2 idle"},
		{"cluster2", fleet.SharedNode(even, 0.5, 0.5, 0.5, 0.5), 4, 0, "all at 50%"},
	} {
		if err := s.addNode(ctx, shared.cluster, shared.node); err != nil {
			return "", err
		}
		if err := s.occupy(ctx, shared.cluster, shared.node.Name, shared.pods); err != nil {
			return "", err
		}
		s.log("%s shares 4 GPUs: %s", shared.node.Name, shared.description)
		if err := s.awaitValue(ctx, fleet.MeanUtilization(shared.node.Name), 50); err != nil {
			return "", err
		}
		if err := s.awaitValue(ctx, fleet.DevicesWithHeadroom(shared.node.Name), float64(shared.lowDevices)); err != nil {
			return "", err
		}
	}
	s.log("the mean of both is 50%%")
	if err := s.createGatedQueue(ctx, fleet.PackingQueue); err != nil {
		return "", err
	}
	for i := range 2 {
		job := sharedJob(fmt.Sprintf("packed-%d", i+1))
		cluster, err := s.start(ctx, job)
		if err != nil {
			return "", err
		}
		if cluster != "cluster1" {
			return "", fmt.Errorf("%s runs on %s, although only cluster1 has devices with headroom", job.Name, cluster)
		}
	}
	if err := s.fleet.SetUtilization(half, 1, 1, 1, 1); err != nil {
		return "", err
	}
	s.log("the jobs use all of their devices")
	if err := s.awaitValue(ctx, fleet.DevicesWithHeadroom(half), 0); err != nil {
		return "", err
	}
	if err := s.submit(ctx, sharedJob("packed-3")); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "packed-3", "no cluster has 1 free"); err != nil {
		return "", err
	}
	if err := s.fleet.Vacate(ctx, "cluster2", even); err != nil {
		return "", err
	}
	if err := s.fleet.SetUtilization(even, 0, 0, 0, 0); err != nil {
		return "", err
	}
	s.log("the other pods of %s end", even)
	cluster, err := s.awaitRunning(ctx, "packed-3")
	if err == nil && cluster != "cluster2" {
		err = fmt.Errorf("packed-3 runs on %s, not on cluster2", cluster)
	}
	return "of two clusters used at 50%, the jobs went to the one with idle devices; packed-3 waited until the devices of the other one had headroom", err
}

// sharedJob returns a job with a replica of a time-sliced GPU.
func sharedJob(name string) fleet.Job {
	return fleet.Job{Name: name, Model: fleet.H100, GPUs: 1, Resource: fleet.SharedGPUResource, Queue: fleet.PackingQueue.Name}
}
