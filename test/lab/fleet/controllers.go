package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// startController runs a controller of Kubernetes against this cluster.
func (c *Cluster) startController(ctx context.Context, name string, args ...string) error {
	return c.runController(ctx, name, name, append([]string{"--kubeconfig=" + c.Kubeconfig, "--leader-elect=false", "--profiling=false",
		"--kube-api-qps=200", "--kube-api-burst=400"}, args...)...)
}

// runController runs an executable of Kubernetes under a name.
func (c *Cluster) runController(ctx context.Context, name, executable string, args ...string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	return c.fleet.procs.Run(ctx, program{
		name: c.Name + "-" + name, path: c.fleet.bin.Path(executable),
		args: append([]string{"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--authentication-skip-lookup"}, args...),
	})
}

// schedulerConfig lets small pods share nodes, as operator/docs/gate.md recommends. kube-scheduler
// ignores most flags beside a configuration file.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 200, burst: 400}
leaderElection: {leaderElect: false}
enableProfiling: false
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources:
        - {name: nvidia.com/gpu, weight: 1}
`

// startScheduler runs a kube-scheduler that fills nodes with used GPUs before idle ones.
func (c *Cluster) startScheduler(ctx context.Context) error {
	file := filepath.Join(c.fleet.opts.Dir, "pki", c.Name, "scheduler.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, schedulerConfig, c.Kubeconfig), 0o600); err != nil {
		return err
	}
	return c.runController(ctx, "kube-scheduler", "kube-scheduler", "--config="+file)
}
