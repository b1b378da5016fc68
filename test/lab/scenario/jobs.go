package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func burst(ctx context.Context, s *stage) (string, error) {
	const n = 12 // two more than fit on the best cluster
	for i := range n {
		if err := s.submit(ctx, fleet.Job{Name: fmt.Sprintf("burst-%d", i+1), Model: fleet.H100, GPUs: 2}); err != nil {
			return "", err
		}
	}
	count := map[string]int{}
	for i := range n {
		cluster, err := s.awaitRunning(ctx, fmt.Sprintf("burst-%d", i+1))
		if err != nil {
			return "", err
		}
		count[cluster]++
	}
	if len(count) < 2 {
		return "", fmt.Errorf("all jobs run on one cluster: %v", count)
	}
	var counts []string
	for _, w := range s.fleet.Workers {
		counts = append(counts, fmt.Sprintf("%d on %s", count[w.Name], w.Name))
	}
	return fmt.Sprintf("%d jobs: %s", n, strings.Join(counts, ", ")), nil
}

func wholeNodes(ctx context.Context, s *stage) (string, error) {
	var first string
	for i := range 3 {
		name := fmt.Sprintf("whole-%d", i+1)
		cluster, err := s.start(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8})
		if err != nil {
			return "", err
		}
		if cluster == "cluster2" {
			return "", fmt.Errorf("%s runs on cluster2, which has no node with 8 H100 GPUs", name)
		}
		if i == 0 {
			first = cluster
		}
	}
	if err := s.submit(ctx, fleet.Job{Name: "whole-4", Model: fleet.H100, GPUs: 8}); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "whole-4", "best is cluster2 with 6"); err != nil {
		return "", err
	}
	if err := s.deleteJob(ctx, "whole-1"); err != nil {
		return "", err
	}
	cluster, err := s.awaitRunning(ctx, "whole-4")
	if err == nil && cluster != first {
		err = fmt.Errorf("whole-4 runs on %s, although only %s has a whole node free", cluster, first)
	}
	return fmt.Sprintf("3 jobs filled the whole nodes, the 4th started on %s when a job ended there", cluster), err
}

func gpuLost(ctx context.Context, s *stage) (string, error) {
	const node = "cluster3-gpu0"
	s.onEnd(func(context.Context) error { return s.fleet.SetDevice(node, 0, fleet.DeviceOK) })
	if err := s.fleet.SetDevice(node, 0, fleet.DeviceLost); err != nil {
		return "", err
	}
	s.log("a GPU of %s is lost", node)
	if err := s.awaitFree(ctx, "cluster3", fleet.H100, 7); err != nil {
		return "", err
	}
	for i := range 2 {
		name := fmt.Sprintf("lost-%d", i+1)
		cluster, err := s.start(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8})
		if err != nil {
			return "", err
		}
		if cluster != "cluster1" {
			return "", fmt.Errorf("%s runs on %s, although only cluster1 has nodes with 8 healthy H100 GPUs", name, cluster)
		}
	}
	if err := s.submit(ctx, fleet.Job{Name: "lost-3", Model: fleet.H100, GPUs: 8}); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "lost-3", "best is cluster3 with 7"); err != nil {
		return "", err
	}
	if err := s.fleet.SetDevice(node, 0, fleet.DeviceOK); err != nil {
		return "", err
	}
	s.log("the GPU of %s is back", node)
	cluster, err := s.awaitRunning(ctx, "lost-3")
	if err == nil && cluster != "cluster3" {
		err = fmt.Errorf("lost-3 runs on %s, not on cluster3", cluster)
	}
	return "no job went to the node with 7 of 8 GPUs; lost-3 started there when the GPU was back", err
}

func bigJob(ctx context.Context, s *stage) (string, error) {
	const small = 6 // 12 of the 12 L4 GPUs: 4 on cluster1, 8 on cluster3
	if err := s.awaitFree(ctx, ".+", fleet.L4, 2*small); err != nil {
		return "", err
	}
	for i := range small {
		j := fleet.Job{Name: fmt.Sprintf("small-%d", i+1), Model: fleet.L4, GPUs: 2}
		if err := s.submit(ctx, j); err != nil {
			return "", err
		}
	}
	for i := range small {
		if _, err := s.awaitRunning(ctx, fmt.Sprintf("small-%d", i+1)); err != nil {
			return "", err
		}
	}
	start := time.Now()
	if err := s.submit(ctx, fleet.Job{Name: "big", Model: fleet.L4, GPUs: 8}); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "big", "no cluster has"); err != nil {
		return "", err
	}
	for i := range small {
		if err := s.deleteJob(ctx, fmt.Sprintf("small-%d", i+1)); err != nil {
			return "", err
		}
	}
	cluster, err := s.awaitRunning(ctx, "big")
	if err == nil && cluster != "cluster3" {
		err = fmt.Errorf("big runs on %s, which has no node with 8 L4 GPUs", cluster)
	}
	return fmt.Sprintf("big waited %s for the small jobs and started on %s", time.Since(start).Round(time.Second), cluster), err
}
