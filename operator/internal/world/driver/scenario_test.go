//go:build !race

package driver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/test/story"
)

// TestScenarios runs the scenarios of the lab in the world.
func TestScenarios(t *testing.T) {
	for _, s := range story.All {
		t.Run(s.Name, func(t *testing.T) {
			w := Run(t, labWorld(), Options{Verbose: printLog(), Steps: func(d *Driver) {
				d.Advance(time.Minute, nil) // the gate and its members come up
				outcome, err := s.Run(&stage{Driver: d})
				if err != nil {
					t.Error(err)
				}
				t.Log(outcome)
			}})
			for _, p := range w.Problems {
				t.Error(p)
			}
			if t.Failed() {
				t.Log(w.Log())
			}
		})
	}
}

func printLog() func(string) {
	if !*verbose {
		return nil
	}
	return func(line string) { fmt.Println(line) }
}

// models are the device models by the names of scenarios.
var models = map[story.Model]string{story.H100: "NVIDIA-H100-80GB-HBM3", story.A100: "NVIDIA-A100-SXM4-80GB", story.L4: "NVIDIA-L4"}

// labWorld is the fleet of the lab, with its queues of 256 devices.
func labWorld() world.Spec {
	s := world.Spec{Seed: 1, Settings: world.Settings{Score: freeDevices}}
	plenty := map[string]int64{}
	for _, model := range models {
		plenty[model] = 256
	}
	for _, from := range story.Fleet {
		c := world.Cluster{Name: from.Name, Quotas: map[string]map[string]int64{"gpu": plenty, "preempting": plenty}}
		for _, n := range from.Nodes {
			c.Pools = append(c.Pools, world.Pool{Nodes: n.Nodes, Model: models[n.Model], Devices: int64(n.Devices), CPU: 128_000, Memory: 1 << 20})
		}
		s.Clusters = append(s.Clusters, c)
	}
	s.Queues = []world.Queue{{Name: "gpu", Nominal: plenty}, {Name: "preempting", Nominal: map[string]int64{models[story.H100]: 8}, WithinQueue: "LowerPriority"}}
	return s
}

// freeDevices is the score of the lab's fleet.
const freeDevices = `sum by ($cluster_label) (cluster_resource_model:plimsoll_free_devices:sum)`

// awaitLimit is how long a state may take to come.
const awaitLimit = 10 * time.Minute

// stage is the world as a stage for scenarios.
type stage struct {
	*Driver
	// cpu of the nodes whose CPU is taken, in milli-cores.
	cpu int64
}

// Log implements story.Stage.
func (s *stage) Log(format string, args ...any) { s.Note(format, args...) }

// Submit implements story.Stage.
func (s *stage) Submit(j story.Job) error {
	priority := int32(0)
	if j.High {
		priority = 100
	}
	duration := j.Duration
	if duration == 0 {
		duration = time.Hour
	}
	s.SubmitNow(world.Job{Name: j.Name, Model: models[j.Model], Devices: int64(j.Devices), Pods: int64(max(1, j.Pods)), Duration: duration, Queue: j.Queue, Priority: priority, CPU: 4000, Memory: 16 << 10, Secret: j.Secret})
	return nil
}

// await advances the world until a condition holds.
func (s *stage) await(what string, holds func() bool) error {
	if s.Advance(awaitLimit, holds) {
		return nil
	}
	return fmt.Errorf("waited %s for %s", awaitLimit, what)
}

func (s *stage) awaitState(job, what string, holds func(world.State) bool) error {
	if err := s.await(job+" "+what, func() bool { return holds(s.StateOf(job)) }); err != nil {
		return fmt.Errorf("%w: %+v", err, s.StateOf(job))
	}
	return nil
}

// Delete implements story.Stage.
func (s *stage) Delete(job string) error {
	s.DeleteJob(job)
	return s.awaitState(job, "to be gone", func(st world.State) bool { return !st.Exists && len(st.Copies) == 0 })
}

// AwaitRunning implements story.Stage.
func (s *stage) AwaitRunning(job string) (cluster string, err error) {
	err = s.awaitState(job, "to run", func(st world.State) bool {
		cluster = st.Cluster
		return len(st.Running) == 1 && len(st.Copies) == 1 && st.Running[0] == st.Cluster
	})
	return cluster, err
}

// AwaitWaiting implements story.Stage.
func (s *stage) AwaitWaiting(job, message string) error {
	return s.awaitState(job, fmt.Sprintf("to wait with %q", message), func(st world.State) bool {
		return st.CheckState == "Pending" && strings.Contains(st.CheckMessage, message) && len(st.Copies) == 0
	})
}

// AwaitQuota implements story.Stage.
func (s *stage) AwaitQuota(job string) error {
	return s.awaitState(job, "to hold quota", func(st world.State) bool { return st.HoldsQuota && st.CheckState == "Pending" })
}

// AwaitFinished implements story.Stage.
func (s *stage) AwaitFinished(job string) error {
	return s.awaitState(job, "to finish", func(st world.State) bool { return st.Finished && len(st.Copies) == 0 })
}

// AwaitNowhere implements story.Stage.
func (s *stage) AwaitNowhere(job string) error {
	return s.awaitState(job, "to have no copy", func(st world.State) bool { return st.Cluster == "" && len(st.Copies) == 0 })
}

// RunsOn implements story.Stage.
func (s *stage) RunsOn(job string) (string, error) {
	if st := s.StateOf(job); len(st.Running) == 1 && len(st.Copies) == 1 {
		return st.Running[0], nil
	}
	return "", nil
}

// AwaitFree implements story.Stage.
func (s *stage) AwaitFree(cluster string, model story.Model, devices int) error {
	matcher := ""
	if cluster != "" {
		matcher = fmt.Sprintf(`,cluster=%q`, cluster)
	}
	expr := fmt.Sprintf(`sum(cluster_resource_model:plimsoll_free_devices:sum{model=%q%s})`, models[model], matcher)
	return s.awaitValue(expr, devices)
}

// awaitValue waits until an expression has one series with this value.
func (s *stage) awaitValue(expr string, want int) error {
	return s.await(fmt.Sprintf("%s to be %d", expr, want), func() bool {
		result, err := s.Store.Query(context.Background(), expr, s.Loop.Now())
		return err == nil && len(result.Samples) == 1 && result.Samples[0].Value == float64(want)
	})
}

// CreateSecret implements story.Stage.
func (s *stage) CreateSecret(cluster, name string) error {
	s.AddSecret(cluster, name)
	return s.awaitValue(fmt.Sprintf(`count(kube_secret_info{cluster=%q,secret=%q})`, cluster, name), 1)
}

// RequireSecrets implements story.Stage.
func (s *stage) RequireSecrets() error {
	return s.UpdateGate(func(g *v1alpha1.PlacementGateSpec) {
		g.Prerequisites = []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteSecret}}
	})
}

// SetDeviceLost implements story.Stage.
func (s *stage) SetDeviceLost(cluster string, model story.Model, lost bool) error {
	unusable := int64(0)
	if lost {
		unusable = 1
	}
	s.SetUnusable(cluster, models[model], unusable)
	return nil
}

// SetCPUTaken implements story.Stage: the nodes have one core.
func (s *stage) SetCPUTaken(cluster string, model story.Model, taken bool) error {
	cpu := int64(1000)
	if !taken {
		cpu = s.cpu
	}
	s.cpu = s.SetCPU(cluster, models[model], cpu)
	return s.awaitValue(story.NodesWithCPU(cluster, model, taken))
}

// SetForged implements story.Stage.
func (s *stage) SetForged(cluster string, _ story.Model, forged bool) error {
	if forged {
		s.Begin(world.Fault{Kind: world.Lies, Cluster: cluster, Amount: 1_000_000})
	} else {
		s.End(world.Lies, cluster)
	}
	return nil
}

// SetMetrics implements story.Stage.
func (s *stage) SetMetrics(cluster string, on bool) error {
	if on {
		s.End(world.MetricsLost, cluster)
		return nil
	}
	s.Begin(world.Fault{Kind: world.MetricsLost, Cluster: cluster})
	return s.await("the samples of "+cluster+" to be old", func() bool { return s.IsStale(cluster) })
}

// SetConnected implements story.Stage.
func (s *stage) SetConnected(cluster string, connected bool) error {
	if connected {
		s.End(world.Unreachable, cluster)
	} else {
		s.Begin(world.Fault{Kind: world.Unreachable, Cluster: cluster})
	}
	return s.await("the connection to "+cluster, func() bool { return s.Connected(cluster) == connected })
}

// SetOperator implements story.Stage.
func (s *stage) SetOperator(on bool) error {
	if on {
		s.process.Start()
	} else {
		s.process.Stop()
	}
	return nil
}

// CreateQueue implements story.Stage. The world has the queue from its start.
func (*stage) CreateQueue(name string, devices int) error {
	if name != "preempting" || devices != 8 {
		return fmt.Errorf("the world has no queue %s with %d devices", name, devices)
	}
	return nil
}
