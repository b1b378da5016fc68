package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func prerequisite(ctx context.Context, s *stage) (string, error) {
	for _, secret := range []struct{ cluster, name string }{{"cluster1", "other"}, {"cluster2", "other"}, {"cluster3", "dataset"}} {
		if err := s.createSecret(ctx, secret.cluster, secret.name); err != nil {
			return "", err
		}
	}
	s.log("the Secret dataset exists on cluster3 only")
	if err := s.awaitValue(ctx, `count(kube_secret_info{namespace="team-a",secret=~"other|dataset"})`, 3); err != nil {
		return "", err
	}
	s.onEnd(func(ctx context.Context) error { return s.fleet.PatchGate(ctx, `{"prerequisites":null}`) })
	if err := s.fleet.PatchGate(ctx, `{"prerequisites":[{"kind":"Secret"}]}`); err != nil {
		return "", err
	}
	cluster, err := s.start(ctx, fleet.Job{Name: "reads-dataset", Model: fleet.H100, GPUs: 1, Secret: "dataset"})
	if err != nil {
		return "", err
	}
	if cluster != "cluster3" {
		return "", fmt.Errorf("reads-dataset runs on %s, which does not have its Secret", cluster)
	}
	if err := s.submit(ctx, fleet.Job{Name: "reads-token", Model: fleet.H100, GPUs: 1, Secret: "token"}); err != nil {
		return "", err
	}
	if err := s.awaitWaiting(ctx, "reads-token", "cluster2 does not have Secret token"); err != nil {
		return "", err
	}
	if err := s.createSecret(ctx, "cluster2", "token"); err != nil {
		return "", err
	}
	s.log("the Secret token exists on cluster2")
	cluster, err = s.awaitRunning(ctx, "reads-token")
	if err == nil && cluster != "cluster2" {
		err = fmt.Errorf("reads-token runs on %s, which does not have its Secret", cluster)
	}
	return "each job went to the only cluster with its Secret, and waited until there was one", err
}

// createSecret creates a Secret on a worker, which is deleted at the end.
func (s *stage) createSecret(ctx context.Context, cluster, name string) error {
	s.onEnd(func(ctx context.Context) error { return s.fleet.DeleteSecret(ctx, cluster, name) })
	return s.fleet.CreateSecret(ctx, cluster, name)
}
