package scenario

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

// fromStory is the scenario of a story, on the lab.
func fromStory(s story.Story) Scenario {
	return Scenario{s.Name, s.Short, func(sc *script) string {
		outcome, err := s.Run(&labStage{sc.ctx, sc.stage})
		story.Must(err)
		return outcome
	}}
}

// labStage is the lab as a stage for stories.
type labStage struct {
	ctx context.Context
	*stage
}

var _ story.Stage = (*labStage)(nil)

// Log implements story.Stage.
func (l *labStage) Log(format string, args ...any) { l.log(format, args...) }

// Submit implements story.Stage.
func (l *labStage) Submit(j story.Job) error {
	job := fleet.Job{Name: j.Name, Model: fleet.Models[j.Model], GPUs: j.Devices, Pods: j.Pods, Duration: j.Duration, Queue: j.Queue, Secret: j.Secret}
	switch {
	case j.High:
		job.Priority = "high"
	case j.Queue != "":
		job.Priority = "low"
	}
	return l.submit(l.ctx, job)
}

// Delete implements story.Stage.
func (l *labStage) Delete(job string) error { return l.deleteJob(l.ctx, job) }

// AwaitRunning implements story.Stage.
func (l *labStage) AwaitRunning(job string) (string, error) { return l.awaitRunning(l.ctx, job) }

// AwaitWaiting implements story.Stage.
func (l *labStage) AwaitWaiting(job, message string) error {
	return l.awaitWaiting(l.ctx, job, message)
}

// AwaitQuota implements story.Stage.
func (l *labStage) AwaitQuota(job string) error {
	return l.awaitView(l.ctx, job, "to hold quota and wait for the gate", func(v fleet.JobView) bool { return v.CheckState == "Pending" })
}

// AwaitFinished implements story.Stage.
func (l *labStage) AwaitFinished(job string) error {
	return l.awaitView(l.ctx, job, "to finish", func(v fleet.JobView) bool { return v.Finished && len(v.Copies) == 0 })
}

// AwaitNowhere implements story.Stage.
func (l *labStage) AwaitNowhere(job string) error {
	return l.awaitView(l.ctx, job, "to have no copy", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 })
}

// RunsOn implements story.Stage.
func (l *labStage) RunsOn(job string) (string, error) {
	v, err := l.fleet.View(l.ctx, job)
	if err != nil || len(v.Running) != 1 || len(v.Copies) != 1 {
		return "", err
	}
	return v.Running[0], nil
}

// AwaitFree implements story.Stage.
func (l *labStage) AwaitFree(cluster string, model story.Model, devices int) error {
	if cluster == "" {
		cluster = ".+"
	}
	return l.awaitFree(l.ctx, cluster, fleet.Models[model], float64(devices))
}

// SetDeviceLost implements story.Stage.
func (l *labStage) SetDeviceLost(cluster string, model story.Model, lost bool) error {
	node := nodesWith(cluster, model)[0]
	if !lost {
		return l.fleet.SetDevice(node, 0, fleet.DeviceOK)
	}
	l.onEnd(func(context.Context) error { return l.fleet.SetDevice(node, 0, fleet.DeviceOK) })
	return l.fleet.SetDevice(node, 0, fleet.DeviceLost)
}

// nodesWith are the names of a cluster's nodes with devices of a model. Stories name those of story.Fleet only.
func nodesWith(cluster string, model story.Model) (names []string) {
	for _, w := range fleet.DefaultWorkers() {
		for _, n := range w.Nodes {
			if w.Name == cluster && n.Model == fleet.Models[model] {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// SetCPUTaken implements story.Stage.
func (l *labStage) SetCPUTaken(cluster string, model story.Model, taken bool) error {
	const occupant, left = "cpu", 1
	vacate := func(ctx context.Context) (err error) {
		for _, node := range nodesWith(cluster, model) {
			err = errors.Join(err, l.fleet.VacateAs(ctx, cluster, node, occupant))
		}
		return err
	}
	occupy := func(ctx context.Context) (err error) {
		l.onEnd(vacate)
		for _, node := range nodesWith(cluster, model) {
			err = errors.Join(err, l.fleet.OccupyAs(ctx, cluster, node, occupant, map[corev1.ResourceName]int64{corev1.ResourceCPU: fleet.NodeCPU - left}))
		}
		return err
	}
	change := vacate
	if taken {
		change = occupy
	}
	if err := change(l.ctx); err != nil {
		return err
	}
	expr, want := story.NodesWithCPU(cluster, model, taken)
	return l.awaitValue(l.ctx, expr, float64(want))
}

// SetForged implements story.Stage.
func (l *labStage) SetForged(cluster string, model story.Model, forged bool) error {
	node := nodesWith(cluster, model)[0]
	end := func(ctx context.Context) error { return l.fleet.EndForgery(ctx, node) }
	if !forged {
		return end(l.ctx)
	}
	l.onEnd(end)
	return l.fleet.ForgeExporter(node, fleet.Models[model], 1_000_000)
}

// SetMetrics implements story.Stage.
func (l *labStage) SetMetrics(cluster string, on bool) error {
	start := func(ctx context.Context) error {
		if err := l.fleet.StartExporters(ctx, cluster); err != nil {
			return err
		}
		return l.awaitTotal(ctx, cluster, "restored", func(total int32) bool { return total >= 0 })
	}
	if on {
		return start(l.ctx)
	}
	l.onEnd(start)
	// The default hold of 300 s would take most of the scenario's time.
	l.onEnd(func(ctx context.Context) error { return l.fleet.SetHold(ctx, nil) })
	if err := l.fleet.SetHold(l.ctx, new(int32(90))); err != nil {
		return err
	}
	if err := l.fleet.KillExporters(cluster); err != nil {
		return err
	}
	return l.awaitTotal(l.ctx, cluster, "-100", func(total int32) bool { return total == -100 })
}

// SetConnected implements story.Stage: it replaces the kubeconfig that Kueue has of the worker.
func (l *labStage) SetConnected(cluster string, connected bool) error {
	secret := []string{"secret/" + cluster + "-kubeconfig", "-n", "kueue-system"}
	set := func(ctx context.Context, kubeconfig, active string) error {
		patch := `{"data":{"kubeconfig":"` + kubeconfig + `"}}`
		if _, err := l.fleet.Hub.Kubectl(ctx, "", append([]string{"patch", "--type=merge", "-p", patch}, secret...)...); err != nil {
			return err
		}
		_, err := l.fleet.Hub.Kubectl(ctx, "", "wait", "--for=condition=Active="+active, "--timeout=60s", "multikueuecluster/"+cluster)
		return err
	}
	if connected {
		good, wasEnded := l.kubeconfigs[cluster]
		if !wasEnded {
			return errors.New("the connection to " + cluster + " was not ended")
		}
		return set(l.ctx, good, "True")
	}
	good, err := l.fleet.Hub.Kubectl(l.ctx, "", append([]string{"get", "-o", "jsonpath={.data.kubeconfig}"}, secret...)...)
	if err != nil {
		return err
	}
	l.kubeconfigs[cluster] = good
	l.onEnd(func(ctx context.Context) error { return set(ctx, good, "True") })
	return set(l.ctx, "bm9uZQ==", "False")
}

// SetOperator implements story.Stage.
func (l *labStage) SetOperator(on bool) error {
	restart := func(ctx context.Context) error {
		if _, running := l.fleet.Programs().Pids()[fleet.Operator]; running {
			return nil
		}
		return l.fleet.Programs().Restart(ctx, fleet.Operator)
	}
	if on {
		return restart(l.ctx)
	}
	l.onEnd(restart)
	return l.fleet.Programs().End(fleet.Operator, syscall.SIGKILL)
}

// CreateSecret implements story.Stage.
func (l *labStage) CreateSecret(cluster, name string) error {
	l.onEnd(func(ctx context.Context) error { return l.fleet.DeleteSecret(ctx, cluster, name) })
	if err := l.fleet.CreateSecret(l.ctx, cluster, name); err != nil {
		return err
	}
	return l.awaitValue(l.ctx, fmt.Sprintf(`count(kube_secret_info{namespace=%q,cluster=%q,secret=%q})`, fleet.Namespace, cluster, name), 1)
}

// RequireSecrets implements story.Stage. The gate tests all kinds of objects.
func (l *labStage) RequireSecrets() error {
	l.onEnd(func(ctx context.Context) error { return l.fleet.PatchGate(ctx, `{"prerequisites":null}`) })
	return l.fleet.PatchGate(l.ctx, `{"prerequisites":[{"kind":"Namespace"},{"kind":"LocalQueue"},{"kind":"ServiceAccount"},{"kind":"ConfigMap"},{"kind":"Secret"},{"kind":"PersistentVolumeClaim"}]}`)
}

// CreateQueue implements story.Stage.
func (l *labStage) CreateQueue(name string, devices int) error {
	l.onEnd(l.fleet.DeletePriorities)
	if err := l.fleet.CreatePriorities(l.ctx); err != nil {
		return err
	}
	return l.createQueue(l.ctx, fleet.GPUQueue{Name: name, Hub: devices, Worker: 256, Preempt: true})
}
