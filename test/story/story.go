// Package story has short stories that each show one property of placement. A scenario is written
// once, in terms of a Stage, and runs on two of them: the model in virtual time, where it takes
// milliseconds, and the lab with real Kueue, OCM and Prometheus. A difference between the two is a fault
// of the model, or of a belief about Kueue.
package story

import (
	"fmt"
	"time"
)

// Story is a scenario on the fleet of the lab: see Fleet.
type Story struct {
	Name string
	// Short is a sentence about what the scenario shows.
	Short string
	// Play runs the scenario and returns a sentence about the outcome. It ends early if a statement does
	// not hold.
	Play func(*Script) string
}

// Job is a job of equal pods in the namespace team-a.
type Job struct {
	Name     string
	Model    Model
	Devices  int // of each pod
	Pods     int // default 1
	Duration time.Duration
	Queue    string // default gpu, whose quota is larger than the fleet
	High     bool   // the high priority, instead of the low one; only in queues that preempt
	Secret   string // that the pods read; empty = none
}

// Model of a device.
type Model string

// Models of the fleet.
const (
	H100 Model = "H100"
	A100 Model = "A100"
	L4   Model = "L4"
)

// Nodes is a number of nodes of a cluster with devices of one model.
type Nodes struct {
	Nodes   int
	Model   Model
	Devices int // of each node
}

// Cluster is a cluster of the fleet.
type Cluster struct {
	Name  string
	Nodes []Nodes
}

// Fleet is the fleet on which stories play. cluster2 has the most H100s, but no node with eight of them.
var Fleet = []Cluster{
	{"cluster1", []Nodes{{2, H100, 8}, {1, A100, 8}, {1, L4, 4}}},
	{"cluster2", []Nodes{{2, H100, 4}, {2, H100, 6}}},
	{"cluster3", []Nodes{{1, H100, 8}, {2, A100, 8}, {1, L4, 8}}},
}

// Stage is a fleet on which scenarios run. Await methods return an error if the state does not come in
// time. What a scenario changes, the stage restores after its end.
type Stage interface {
	Log(format string, args ...any)
	Submit(Job) error
	// Delete deletes a job and waits until it is gone everywhere.
	Delete(job string) error
	// AwaitRunning waits until the pods of a job run on one cluster and no other cluster has a copy.
	AwaitRunning(job string) (cluster string, err error)
	// AwaitWaiting waits until the gate lets a job wait, with a message that contains the text.
	AwaitWaiting(job, message string) error
	// AwaitQuota waits until a job holds quota on the hub and its check is Pending.
	AwaitQuota(job string) error
	AwaitFinished(job string) error
	// AwaitNowhere waits until a job has no cluster and no copy.
	AwaitNowhere(job string) error
	// RunsOn is the only cluster with a copy of the job, whose pods run; empty = none, or several.
	RunsOn(job string) (string, error)
	// AwaitFree waits until the metrics show this number of free devices on a cluster; all = on all
	// clusters together, for an empty name.
	AwaitFree(cluster string, model Model, devices int) error
	// SetDeviceLost makes the first device of the first node of a model unusable, or usable again.
	SetDeviceLost(cluster string, model Model, lost bool) error
	// SetCPUTaken lets pods outside of Kueue's queues take the CPU of the nodes of a model, but one core each, or ends that,
	// and waits until the metrics show it.
	SetCPUTaken(cluster string, model Model, taken bool) error
	// SetForged lets an exporter of the cluster claim a million free devices of a model for its node, or ends that.
	SetForged(cluster string, model Model, forged bool) error
	// SetMetrics stops or starts the exporters of a cluster, and waits until its score shows it.
	SetMetrics(cluster string, on bool) error
	// SetConnected ends or restores the connection of the hub's Kueue to a cluster.
	SetConnected(cluster string, connected bool) error
	// SetOperator kills or starts the operator.
	SetOperator(on bool) error
	// CreateSecret creates a Secret of jobs on a cluster, and waits until the metrics show it.
	CreateSecret(cluster, name string) error
	// RequireSecrets lets the gate send a job only to clusters with the Secrets that its pods read.
	RequireSecrets() error
	// CreateQueue creates a queue with a quota of devices on the hub, in which high priorities preempt low ones.
	CreateQueue(name string, devices int) error
}

// NodesWithCPU returns a query for the number of a cluster's nodes with more than one free core, and what it returns after
// SetCPUTaken.
func NodesWithCPU(cluster string, model Model, taken bool) (expr string, want int) {
	for _, c := range Fleet {
		for _, n := range c.Nodes {
			if c.Name == cluster && (n.Model != model || !taken) {
				want += n.Nodes
			}
		}
	}
	return fmt.Sprintf(`count(node:kube_unrequested:placeable{cluster=%q,resource="cpu"} > 1)`, cluster), want
}

// failure ends a script.
type failure struct{ err error }

// Run plays a scenario on a stage and returns a sentence about the outcome.
func (s Story) Run(stage Stage) (outcome string, err error) {
	return Play(func() string { return s.Play(&Script{stage}) })
}

// Play runs a script, which Must and Require may end, and returns its sentence about the outcome.
func Play(script func() string) (outcome string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			f, ok := cause.(failure)
			if !ok {
				panic(cause)
			}
			err = f.err
		}
	}()
	return script(), nil
}

// Find returns the scenario of a name.
func Find(name string) (Story, bool) {
	for _, s := range All {
		if s.Name == name {
			return s, true
		}
	}
	return Story{}, false
}

// Script is a stage for stories: a method that fails ends the story.
type Script struct{ Stage }

// Must ends the script with an error; nil = it goes on.
func Must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Require ends the script with an error unless the condition holds.
func Require(holds bool, format string, args ...any) {
	if !holds {
		Must(fmt.Errorf(format, args...))
	}
}

// Start submits a job and returns the cluster on which it runs.
func (s *Script) Start(j Job) string {
	s.Submits(j)
	return s.Running(j.Name)
}

// Submits submits a job.
func (s *Script) Submits(j Job) { Must(s.Submit(j)) }

// Running waits until a job runs.
func (s *Script) Running(job string) string {
	cluster, err := s.AwaitRunning(job)
	Must(err)
	return cluster
}

// StartsOn submits a job that must run on a cluster.
func (s *Script) StartsOn(j Job, cluster string) {
	s.Submits(j)
	s.RunningOn(j.Name, cluster)
}

// RunningOn waits until a job runs, which must be on a cluster.
func (s *Script) RunningOn(job, want string) {
	cluster := s.Running(job)
	Require(cluster == want, "%s runs on %s, not on %s", job, cluster, want)
}

// Waits waits until the gate lets a job wait with a message.
func (s *Script) Waits(job, message string) { Must(s.AwaitWaiting(job, message)) }

// Deletes deletes a job.
func (s *Script) Deletes(job string) { Must(s.Delete(job)) }

// StaysOn requires that a job runs on a cluster.
func (s *Script) StaysOn(job, cluster string) {
	on, err := s.RunsOn(job)
	Must(err)
	Require(on == cluster, "%s ran on %s and is now on %q", job, cluster, on)
}
