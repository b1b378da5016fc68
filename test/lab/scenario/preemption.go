package scenario

import (
	"context"
	"fmt"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func preemption(ctx context.Context, s *stage) (string, error) {
	s.onEnd(s.fleet.DeletePriorities)
	if err := s.fleet.CreatePriorities(ctx); err != nil {
		return "", err
	}
	// The hub has quota for one job of 8 GPUs.
	if err := s.createQueue(ctx, fleet.GPUQueue{Name: "preempting", Hub: 8, Worker: 256, Preempt: true}); err != nil {
		return "", err
	}
	first, err := s.start(ctx, fleet.Job{Name: "low", Model: fleet.H100, GPUs: 8, Queue: "preempting", Priority: "low"})
	if err != nil {
		return "", err
	}
	high := fleet.Job{Name: "high", Model: fleet.H100, GPUs: 8, Queue: "preempting", Priority: "high", Duration: 5 * time.Second}
	if err := s.submit(ctx, high); err != nil {
		return "", err
	}
	err = s.awaitView(ctx, "low", "to be preempted", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 })
	if err != nil {
		return "", err
	}
	s.log("low is preempted")
	err = s.awaitView(ctx, "high", "to finish", func(v fleet.JobView) bool { return v.Finished && len(v.Copies) == 0 })
	if err != nil {
		return "", err
	}
	s.log("high has finished")
	second, err := s.awaitRunning(ctx, "low")
	return fmt.Sprintf("high took the quota of low, which had run on %s; after high finished, low started on %s", first, second), err
}
