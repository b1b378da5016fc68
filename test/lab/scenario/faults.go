package scenario

import (
	"context"
	"fmt"
	"syscall"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func exportersGone(ctx context.Context, s *stage) (string, error) {
	silent, err := s.start(ctx, fleet.Job{Name: "stays", Model: fleet.H100, GPUs: 1})
	if err != nil {
		return "", err
	}
	s.onEnd(func(ctx context.Context) error {
		if err := s.fleet.StartExporters(ctx, silent); err != nil {
			return err
		}
		return s.awaitTotal(ctx, silent, "restored", func(total int32) bool { return total >= 0 })
	})
	// The default hold of 300 s would take most of the scenario's time.
	s.onEnd(func(ctx context.Context) error { return s.fleet.SetHold(ctx, nil) })
	if err := s.fleet.SetHold(ctx, new(int32(90))); err != nil {
		return "", err
	}
	if err := s.fleet.KillExporters(silent); err != nil {
		return "", err
	}
	s.log("the exporters of %s are killed", silent)
	if err := s.awaitTotal(ctx, silent, "-100", func(total int32) bool { return total == -100 }); err != nil {
		return "", err
	}
	cluster, err := s.start(ctx, fleet.Job{Name: "elsewhere", Model: fleet.H100, GPUs: 1})
	if err != nil {
		return "", err
	}
	if cluster == silent {
		return "", fmt.Errorf("elsewhere runs on %s, which has no fresh metrics", cluster)
	}
	return fmt.Sprintf("the score of %s became -100, a new job went to %s, and the old one runs on", silent, cluster),
		s.checkRunsOn(ctx, "stays", silent)
}

func workerUnreachable(ctx context.Context, s *stage) (string, error) {
	lost, err := s.start(ctx, fleet.Job{Name: "cut-off", Model: fleet.H100, GPUs: 1})
	if err != nil {
		return "", err
	}
	secret := []string{"secret/" + lost + "-kubeconfig", "-n", "kueue-system"}
	good, err := s.fleet.Hub.Kubectl(ctx, "", append([]string{"get", "-o", "jsonpath={.data.kubeconfig}"}, secret...)...)
	if err != nil {
		return "", err
	}
	connect := func(ctx context.Context, kubeconfig, active string) error {
		patch := `{"data":{"kubeconfig":"` + kubeconfig + `"}}`
		if _, err := s.fleet.Hub.Kubectl(ctx, "", append([]string{"patch", "--type=merge", "-p", patch}, secret...)...); err != nil {
			return err
		}
		_, err := s.fleet.Hub.Kubectl(ctx, "", "wait", "--for=condition=Active="+active, "--timeout=60s", "multikueuecluster/"+lost)
		return err
	}
	s.onEnd(func(ctx context.Context) error { return connect(ctx, good, "True") })
	if err := connect(ctx, "bm9uZQ==", "False"); err != nil {
		return "", err
	}
	s.log("the hub's Kueue has no valid credentials for %s", lost)
	for i := range 3 {
		name := fmt.Sprintf("reached-%d", i+1)
		cluster, err := s.start(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1})
		if err != nil {
			return "", err
		}
		if cluster == lost {
			return "", fmt.Errorf("%s runs on %s, which Kueue can't reach", name, lost)
		}
	}
	if err := s.checkRunsOn(ctx, "cut-off", lost); err != nil {
		return "", err
	}
	if err := connect(ctx, good, "True"); err != nil {
		return "", err
	}
	return fmt.Sprintf("3 new jobs avoided %s, and its job ran on", lost), s.checkRunsOn(ctx, "cut-off", lost)
}

func operatorGone(ctx context.Context, s *stage) (string, error) {
	cluster, err := s.start(ctx, fleet.Job{Name: "runs-on", Model: fleet.H100, GPUs: 1})
	if err != nil {
		return "", err
	}
	restart := func(ctx context.Context) error {
		if _, running := s.fleet.Programs().Pids()[fleet.Operator]; running {
			return nil
		}
		return s.fleet.Programs().Restart(ctx, fleet.Operator)
	}
	s.onEnd(restart)
	if err := s.fleet.Programs().End(fleet.Operator, syscall.SIGKILL); err != nil {
		return "", err
	}
	s.log("the operator is killed")
	if err := s.submit(ctx, fleet.Job{Name: "later", Model: fleet.H100, GPUs: 1}); err != nil {
		return "", err
	}
	err = s.awaitView(ctx, "later", "to hold quota and wait for the gate", func(v fleet.JobView) bool { return v.CheckState == "Pending" })
	if err != nil {
		return "", err
	}
	if err := s.checkRunsOn(ctx, "runs-on", cluster); err != nil {
		return "", err
	}
	if err := restart(ctx); err != nil {
		return "", err
	}
	s.log("the operator is back")
	later, err := s.awaitRunning(ctx, "later")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("later waited for the operator and runs on %s; runs-on stayed on %s", later, cluster), s.checkRunsOn(ctx, "runs-on", cluster)
}
