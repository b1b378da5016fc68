package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func nvlink(ctx context.Context, s *stage) (string, error) {
	if err := s.createGatedQueue(ctx, fleet.NVLinkQueue); err != nil {
		return "", err
	}
	const node = "cluster3-gpu0"
	s.onEnd(func(context.Context) error { return s.fleet.ConnectDevices(node, 8) })
	if err := s.fleet.ConnectDevices(node, 4); err != nil {
		return "", err
	}
	s.log("NVLink connects only 4 of the 8 GPUs of %s", node)
	if err := s.awaitValue(ctx, fmt.Sprintf(`node_resource_model:plimsoll_free_group_devices:placeable{node=%q}`, node), 4); err != nil {
		return "", err
	}
	for i := range 2 {
		name := fmt.Sprintf("linked-%d", i+1)
		cluster, err := s.start(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8, Queue: "nvlink"})
		if err != nil {
			return "", err
		}
		if cluster != "cluster1" {
			return "", fmt.Errorf("%s runs on %s, although only cluster1 has nodes whose 8 GPUs are connected", name, cluster)
		}
	}
	if err := s.submit(ctx, fleet.Job{Name: "linked-3", Model: fleet.H100, GPUs: 8, Queue: "nvlink"}); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "linked-3", "best is cluster3 with 8 free on one node"); err != nil {
		return "", err
	}
	if err := s.fleet.ConnectDevices(node, 8); err != nil {
		return "", err
	}
	s.log("NVLink connects all GPUs of %s", node)
	cluster, err := s.awaitRunning(ctx, "linked-3")
	if err == nil && cluster != "cluster3" {
		err = fmt.Errorf("linked-3 runs on %s, not on cluster3", cluster)
	}
	return "no job went to 8 free GPUs of which only 4 were connected; linked-3 started there when all were", err
}
