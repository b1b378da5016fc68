package scenario

import (
	"context"
	"fmt"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func idle(ctx context.Context, s *stage) (string, error) {
	s.deleteAtEnd("reclaimpolicy/idle-gpus")
	if err := s.createQueue(ctx, fleet.GPUQueue{Name: "reclaim", Hub: 8, Worker: 256}); err != nil {
		return "", err
	}
	cluster, err := s.start(ctx, fleet.Job{Name: "notebook", Model: fleet.H100, GPUs: 8, Queue: "reclaim",
		PodLabels: map[string]string{v1alpha1.ReclaimableLabel: "true"}})
	if err != nil {
		return "", err
	}
	node, err := s.fleet.NodeOf(ctx, "notebook", cluster)
	if err != nil {
		return "", err
	}
	s.onEnd(func(context.Context) error { return s.fleet.SetIdle(node, false) })
	if err := s.fleet.SetIdle(node, true); err != nil {
		return "", err
	}
	s.log("the GPUs of notebook are idle")
	if err := s.submit(ctx, fleet.Job{Name: "waits", Model: fleet.H100, GPUs: 8, Queue: "reclaim", Duration: 5 * time.Second}); err != nil {
		return "", err
	}
	s.log("waits needs the quota of notebook")
	if err := s.fleet.Hub.Apply(ctx, fleet.ReclaimIdle(v1alpha1.ModeEnforce)); err != nil {
		return "", err
	}
	err = s.awaitView(ctx, "notebook", "to return to its queue", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 })
	if err != nil {
		return "", err
	}
	s.log("notebook is back in its queue")
	if err := s.awaitView(ctx, "waits", "to finish", func(v fleet.JobView) bool { return v.Finished && len(v.Copies) == 0 }); err != nil {
		return "", err
	}
	s.log("waits has finished")
	if err := s.fleet.SetIdle(node, false); err != nil {
		return "", err
	}
	again, err := s.awaitRunning(ctx, "notebook")
	return fmt.Sprintf("notebook returned its idle GPUs on %s, another job ran, and then notebook runs again on %s", cluster, again), err
}
