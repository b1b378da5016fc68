package scenario

import (
	"context"
	"fmt"
	"strings"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func trial(ctx context.Context, s *stage) (string, error) {
	s.deleteAtEnd("jobprofile/newcomer")
	s.onEnd(s.fleet.DeleteTrialQueue)
	if err := s.fleet.CreateTrialQueue(ctx); err != nil {
		return "", err
	}
	if err := s.submit(ctx, fleet.TriedJob("newcomer")); err != nil {
		return "", err
	}
	err := fleet.Await(ctx, "a copy of newcomer to run on both models", func(ctx context.Context) error {
		running, err := s.fleet.RunningTrials(ctx)
		if err == nil && len(running) != 2 {
			err = fmt.Errorf("running copies: %v", running)
		}
		if err == nil {
			s.log("newcomer waits; copies of one pod run: %s", strings.Join(running, ", "))
		}
		return err
	})
	if err != nil {
		return "", err
	}
	cluster, err := s.awaitRunning(ctx, "newcomer")
	if err != nil {
		return "", err
	}
	message, err := s.fleet.TrialMessage(ctx, "newcomer")
	if err != nil {
		return "", err
	}
	s.log("the check of the trial is %s", message)
	if cluster != fleet.FastestModelCluster {
		return "", fmt.Errorf("newcomer runs on %s, want %s, which has the most devices of its faster model", cluster, fleet.FastestModelCluster)
	}
	if err := s.print(ctx, "profile", "-n", fleet.Namespace); err != nil {
		return "", err
	}
	node, err := s.fleet.NodeOf(ctx, "newcomer", cluster)
	if err != nil {
		return "", err
	}
	model, err := s.fleet.Worker(cluster).Kubectl(ctx, "", "get", "node", node, "-o", `jsonpath={.metadata.labels.nvidia\.com/gpu\.product}`)
	if err == nil && model != fleet.H100.Label {
		err = fmt.Errorf("newcomer runs on %s, although its trial was faster on %s", model, fleet.H100.Label)
	}
	return fmt.Sprintf("copies ran on two models, then newcomer started on the faster one, %s", model), err
}
