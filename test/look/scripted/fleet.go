// Package scripted simulates the metrics of a fleet with faults, for three hours that end
// now: exporters, kube-state-metrics, Kueue and the operator. It evaluates the shipped
// rules over them and serves queries like Prometheus.
package scripted

import (
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Models of the fleet, as the exporter names them.
const (
	h100 = "NVIDIA-H100-80GB-HBM3"
	a100 = "NVIDIA-A100-SXM4-80GB"
	l40s = "NVIDIA-L40S"
	v5e  = "tpu-v5-lite-podslice"
)

// cluster of the fleet.
type cluster struct {
	name  string
	nodes []*node
	// bridged clusters have dcgm-exporter instead of plimsoll-exporter.
	bridged bool
	// goneFor is how long the cluster's Prometheus has not been reachable; 0 = it is.
	goneFor time.Duration
}

// node with devices of one model.
type node struct {
	name    string
	model   string
	devices []*deviceState
	// cordonedFor and silentFor are 0 for a schedulable node and a reporting exporter.
	cordonedFor, silentFor time.Duration
	tainted                bool
}

// deviceState is the script of a device. Durations count back from the end, and 0 means
// that the event does not happen.
type deviceState struct {
	index int
	uuid  string
	job   *job
	// pod is the index of the job's pod that holds the device.
	pod int

	lostFor, hungFor, hotFor, stalledFor time.Duration
	// unknownXIDFor is the time since an XID event with an unknown code.
	unknownXIDFor                 time.Duration
	migInstances                  []string
	correctedErrors, remappedRows float64
	remapPending, linkErrors      bool
	// shares is how many times a device plugin offers the device; 0 = once. Two pods hold a
	// shared device. sharedBy is the provider of the shares.
	shares   float64
	sharedBy string
}

// load describes how a job uses its devices.
type load int

const (
	training load = iota
	inference
	notebook
	idle
)

// job that holds devices.
type job struct {
	namespace, kind, name string
	load                  load
}

// Fleet is the script of all clusters.
type Fleet struct {
	end      time.Time
	clusters []*cluster
	// labeled adds the label cluster, as Thanos and remote write do.
	labeled bool
	// alter, if not nil, changes the samples of the script. It returns false for those that do not
	// exist.
	alter func(at time.Time, series labels.Labels, v float64) (float64, bool)
	// extra, if not nil, emits more series.
	extra func(*emitter)
}

// NewFleet returns the script of twelve clusters, whose history ends at the given time.
func NewFleet(end time.Time) *Fleet {
	f := &Fleet{end: end, labeled: true, clusters: []*cluster{east(), west(), tpus()}}
	for i := range 7 {
		f.clusters = append(f.clusters, small(i))
	}
	f.clusters = append(f.clusters, bridged(), unreachable())
	return f
}

// NewCluster returns the script of one cluster that is its own hub. Its series have no
// label cluster.
func NewCluster(end time.Time) *Fleet {
	return &Fleet{end: end, clusters: []*cluster{east()}}
}

// east has three jobs on four nodes, with a lost device, a hot device that slows a job
// down, and a cordoned node.
func east() *cluster {
	c := &cluster{name: "east"}
	for i := range 4 {
		c.nodes = append(c.nodes, newNode(c.name, i, h100, 8))
	}
	hold(c.nodes[0:2], &job{"team-vision", "Job", "pretrain-vit-22b", training})
	hold(c.nodes[2:3], &job{"team-language", "JobSet", "finetune-70b", training})
	holdSome(c.nodes[3], 0, 2, &job{"team-search", "Deployment", "reranker", inference})
	holdSome(c.nodes[3], 2, 3, &job{"team-vision", "Pod", "notebook-ana", idle})
	c.nodes[1].devices[3].hotFor = 70 * time.Minute
	c.nodes[2].devices[5].lostFor = 25 * time.Minute
	c.nodes[3].cordonedFor = 50 * time.Minute
	return c
}

// west has MIG instances, memory errors, link errors and a hung device.
func west() *cluster {
	c := &cluster{name: "west"}
	for i := range 3 {
		c.nodes = append(c.nodes, newNode(c.name, i, h100, 8))
	}
	c.nodes = append(c.nodes, newNode(c.name, 3, a100, 8))
	hold(c.nodes[0:1], &job{"team-speech", "RayJob", "asr-sweep", training})
	holdSome(c.nodes[1], 0, 6, &job{"team-language", "Job", "eval-nightly", notebook})
	holdSome(c.nodes[2], 0, 4, &job{"team-robotics", "PyTorchJob", "policy-rl", training})
	holdSome(c.nodes[3], 4, 8, &job{"team-robotics", "Job", "rollouts", inference})
	c.nodes[1].devices[2].hungFor = 12 * time.Minute
	c.nodes[2].devices[1].linkErrors = true
	a := c.nodes[3].devices
	a[0].migInstances = []string{"1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"}
	a[1].migInstances = []string{"3g.40gb", "3g.40gb"}
	a[0].job = &job{"team-search", "Deployment", "embedder", inference}
	a[4].unknownXIDFor = 40 * time.Minute
	a[5].correctedErrors, a[5].remappedRows, a[5].remapPending = 240, 1, true
	return c
}

// tpus has a slice that stalls.
func tpus() *cluster {
	c := &cluster{name: "tpus"}
	for i := range 4 {
		c.nodes = append(c.nodes, newNode(c.name, i, v5e, 4))
	}
	hold(c.nodes[0:2], &job{"team-language", "JobSet", "gemma-distill", training})
	hold(c.nodes[2:3], &job{"team-speech", "JobSet", "asr-tpu", training})
	for _, d := range c.nodes[2].devices {
		d.stalledFor = 35 * time.Minute
	}
	return c
}

// small is a cluster with four devices.
func small(i int) *cluster {
	c := &cluster{name: fmt.Sprintf("edge-%d", i+1)}
	c.nodes = []*node{newNode(c.name, 0, l40s, 4)}
	if i != 3 {
		holdSome(c.nodes[0], 0, 1+i%4, &job{fmt.Sprintf("store-%d", i+1), "Deployment", "detector", inference})
	}
	if i == 1 {
		c.nodes[0].devices[0].shares, c.nodes[0].devices[0].sharedBy = 4, "nvidia"
		c.nodes[0].devices[1].shares, c.nodes[0].devices[1].sharedBy = 4, "mps"
		c.nodes[0].devices[1].job = &job{"store-2", "Job", "retrain", training}
	}
	if i == 5 {
		c.nodes[0].tainted = true
	}
	if i == 6 {
		c.nodes[0].silentFor = 20 * time.Minute
	}
	return c
}

// bridged has dcgm-exporter alone.
func bridged() *cluster {
	c := &cluster{name: "legacy", bridged: true, nodes: []*node{newNode("legacy", 0, a100, 8)}}
	holdSome(c.nodes[0], 0, 5, &job{"team-vision", "Job", "segment", training})
	return c
}

// unreachable lost its Prometheus 40 minutes ago.
func unreachable() *cluster {
	c := &cluster{name: "south", goneFor: 40 * time.Minute, nodes: []*node{newNode("south", 0, h100, 8)}}
	holdSome(c.nodes[0], 0, 8, &job{"team-language", "Job", "tokenizer", training})
	return c
}

func newNode(cluster string, index int, model string, devices int) *node {
	n := &node{name: fmt.Sprintf("%s-gpu-%d", cluster, index+1), model: model}
	prefix := "GPU-"
	if model == v5e {
		n.name, prefix = fmt.Sprintf("%s-host-%d", cluster, index+1), "TPU-"
	}
	for i := range devices {
		n.devices = append(n.devices, &deviceState{index: i, uuid: prefix + uuid(n.name, i)})
	}
	return n
}

func uuid(node string, index int) string {
	h := fnv.New128a()
	fmt.Fprintln(h, node, index)
	s := h.Sum(nil)
	return fmt.Sprintf("%x-%x-%x-%x-%x", s[0:4], s[4:6], s[6:8], s[8:10], s[10:16])
}

// hold gives all devices of the nodes to a job with one pod for each node.
func hold(nodes []*node, j *job) {
	for i, n := range nodes {
		for _, d := range n.devices {
			d.job, d.pod = j, i
		}
	}
}

// holdSome gives the devices from..to-1 of a node to a job with one pod.
func holdSome(n *node, from, to int, j *job) {
	for _, d := range n.devices[from:to] {
		d.job = j
	}
}

func (d *deviceState) podName() string {
	if d.job.kind == "Pod" {
		return d.job.name
	}
	return fmt.Sprintf("%s-%d", d.job.name, d.pod)
}

// podNames returns the pods that hold the device.
func (d *deviceState) podNames() []string {
	switch {
	case d.job == nil:
		return nil
	case d.shares > 0:
		return []string{d.podName(), d.job.name + "-shared"}
	}
	return []string{d.podName()}
}

// happens reports whether an event that began `before` the end has begun at t.
func (f *Fleet) happens(before time.Duration, t time.Time) bool {
	return before > 0 && t.After(f.end.Add(-before))
}

// sinceStart returns the seconds since a start long before the history.
func (f *Fleet) sinceStart(t time.Time) float64 { return t.Sub(f.end).Seconds() + 90000 }

// wave returns a value from 0 to 1 that differs for each key and changes slowly.
func wave(t time.Time, key string, period time.Duration) float64 {
	h := fnv.New32a()
	fmt.Fprint(h, key)
	phase := float64(h.Sum32()%1000) / 1000
	x := float64(t.Unix())/period.Seconds() + phase
	return 0.5 + 0.35*math.Sin(2*math.Pi*x) + 0.15*math.Sin(2*math.Pi*x*3.7)
}

// utilization of a device that is neither lost nor hung, 0 to 1.
func (f *Fleet) utilization(_ *node, d *deviceState, t time.Time) float64 {
	if d.job == nil || d.job.load == idle || f.happens(d.stalledFor, t) {
		return 0
	}
	u := 0.0
	switch d.job.load {
	case idle:
	case training:
		u = 0.9 + 0.08*wave(t, d.job.name, 23*time.Minute) + 0.01*wave(t, d.uuid, 5*time.Minute)
	case inference:
		u = 0.2 + 0.5*wave(t, d.job.name, 97*time.Minute) + 0.05*wave(t, d.uuid, 7*time.Minute)
	case notebook:
		u = math.Max(0, wave(t, d.uuid, 61*time.Minute)-0.5)
	}
	if f.happens(d.hotFor, t) {
		u *= 0.93
	}
	return u
}
