// Package world is a model of everything around the operator, in virtual time: workers, Kueue, MultiKueue,
// OCM and a metrics store. The same Spec always takes the same course. operator/docs/world.md states what
// is modeled, which invariants hold, and what is left out.
package world

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Spec describes a world completely: the same Spec always takes the same course. It is data, so
// that a failing world can be made smaller and kept as a test.
type Spec struct {
	// Name of a named world; empty for a random one.
	Name string
	// Seed of all random choices that the world makes while it runs.
	Seed     uint64
	Clusters []Cluster
	Queues   []Queue
	Jobs     []Job
	Faults   []Fault
	Settings Settings
}

// Cluster is a worker.
type Cluster struct {
	Name  string
	Pools []Pool
	// Quotas of the worker's ClusterQueues in devices, by ClusterQueue and model. A queue that is not
	// named has as many as the cluster has devices at the start.
	Quotas map[string]map[string]int64
	// CPUQuota of each of the worker's ClusterQueues in milli-cores; zero = no quota for CPU, which Kueue then ignores.
	CPUQuota int64
	// LocalQueues are the ClusterQueues of LocalQueues of the worker that have other names than the hub's, by queue.
	// kube-state-metrics reports all LocalQueues if there are any here.
	LocalQueues map[string]string
	// Spread: the scheduler places pods on the node with the most free devices, and otherwise on
	// the one with the fewest.
	Spread bool
	// ResourceQuota limits the pods of the namespace of jobs; zero = no limit.
	ResourceQuota int64
	// PodsReadyTimeout of the worker's Kueue. Default 30 min, as in Kueue 0.19; negative = off.
	PodsReadyTimeout time.Duration
}

// Pool is a group of equal nodes.
type Pool struct {
	Nodes int
	// Resource and Model of the devices; Model is the node label nvidia.com/gpu.product.
	Resource string
	Model    string
	Devices  int64
	// CPU in milli-cores and Memory in MiB of a node.
	CPU    int64
	Memory int64
	Taint  string // key of a NoSchedule taint; empty = none; the rules count nodes with another one than DedicatedTaint as unusable
	Labels map[string]string
	// Max is the number of nodes up to which the pool grows for pods without a node, one node
	// after StartTime; zero = does not grow.
	Max       int
	StartTime time.Duration
}

// DedicatedTaint is the key of a taint that some jobs tolerate.
const DedicatedTaint = "dedicated"

func (p *Pool) isUsable() bool { return p.Taint == "" || p.Taint == DedicatedTaint }

// Queue is a ClusterQueue with its LocalQueue on the hub and on each worker.
type Queue struct {
	Name   string
	Cohort string
	// Nominal quota on the hub in devices, by model; nil = all devices of the fleet. BorrowingLimit
	// is zero for no limit.
	Nominal        map[string]int64
	BorrowingLimit int64
	StrictFIFO     bool
	// WithinQueue and ReclaimCohort are Kueue's preemption policies: "", LowerPriority,
	// LowerOrNewerEqualPriority, Any (ReclaimCohort only).
	WithinQueue   string
	ReclaimCohort string
	// OtherCheck: the queue has the check of another controller, which passes after
	// Settings.OtherCheckDelay.
	OtherCheck bool
	// AnyModel: the queue has one flavor for the devices of all models.
	AnyModel bool
	// NoGate: the queue does not have the gate's check.
	NoGate bool
}

// Job is a job that a user submits.
type Job struct {
	Name      string
	Namespace string // default team-a
	Queue     string // default gpu
	At        time.Duration
	Kind      JobKind
	Pods      int64
	// Resource (default nvidia.com/gpu) and Devices that each pod requests; Model is the node
	// selector of the device model, empty = any.
	Resource string
	Devices  int64
	Model    string
	CPU      int64 // milli-cores of each pod
	Memory   int64 // MiB of each pod
	// InitCPU is requested by an init container of each pod.
	InitCPU int64
	// SidecarCPU is requested by a sidecar of each pod. SidecarDevices is the part of Devices that the sidecar requests.
	SidecarCPU, SidecarDevices int64
	Priority                   int32
	// Duration from when all pods run.
	Duration time.Duration
	// Limit sets maximumExecutionTimeSeconds to the duration.
	Limit bool
	// MinPods permits partial admission with at least this many pods; zero = all.
	MinPods int64
	// Elastic: the user may resize the job while it runs (fault Resized).
	Elastic bool
	// Topology is the level of which one domain must take all pods, a node label; empty = none.
	Topology string
	// Components of a LeaderWorkerSet, each with Pods pods.
	Components int64
	// Tolerates is the key of a taint that the pods tolerate.
	Tolerates string
	// Secret that the pods read; empty = none.
	Secret string
	// Behavior of the pods once they are on a node.
	Behavior Behavior
	// Reclaimable: the job agrees to be reclaimed and moved. Idle: its pods never use their devices.
	Reclaimable, Idle bool
	// Tried: the job agrees to be tried.
	Tried bool
	// Pull is the time that a pod takes on its node until it is ready, in addition to a few seconds.
	Pull time.Duration
	// Grace is the time for which a pod holds its devices after its deletion. Lingers is the same
	// after it has finished.
	Grace, Lingers time.Duration
	// TrialOf is the UID of the Workload that a copy tries; empty = the job is no copy. Overdue: its deadline ends the
	// copy. The world sets both.
	TrialOf types.UID
	Overdue bool
}

// JobKind is the kind of a job.
type JobKind string

// KindJob is a batch/v1 Job.
const KindJob JobKind = "Job"

// Behavior of pods on a node.
type Behavior string

// Behaviors of pods.
const (
	// Succeeds: the pods become ready and end after the job's duration.
	Succeeds Behavior = ""
	// Crashes: the pods start and fail again and again, and never become ready.
	Crashes Behavior = "Crashes"
	// NeverReady: the pods start, hold their devices and never become ready.
	NeverReady Behavior = "NeverReady"
	// Fails: the job fails after its duration.
	Fails Behavior = "Fails"
)

// Fault changes the world at a time, and ends after Lasts.
type Fault struct {
	Kind FaultKind
	At   time.Duration
	// Lasts is zero for a fault that is an event, or that never ends.
	Lasts time.Duration
	// Cluster or Job that the fault concerns.
	Cluster string
	Job     string
	// Amount is a size whose unit depends on the kind.
	Amount int64
}

// FaultKind is a kind of fault.
type FaultKind string

// Settings of the world that are the same for all its clusters.
type Settings struct {
	// Gate is the spec of the PlacementGate "gpu". References, MultiKueueConfig and source are set
	// by the world.
	Gate v1alpha1.PlacementGateSpec
	// Score is the PromQL of a ScoringPolicy "fleet" that OCM's Placement ranks by; empty = no policy.
	Score string
	// NumberOfClusters of the Placement; zero = all. Toleration is for how long it decides a cluster whose agent OCM has
	// lost.
	NumberOfClusters int
	Toleration       time.Duration
	// Length is the time after the last arrival and fault at which every job must be over.
	Length time.Duration
	// ScrapeInterval and RuleInterval default to 15 s. Rules: the shipped rules run in Prometheus's
	// engine; otherwise their closed form is stored.
	ScrapeInterval time.Duration
	Rules          bool
	// WatchDelay is the longest time from a write to its event; default 400 ms.
	WatchDelay time.Duration
	// WorkerQPS is MultiKueue's limit of requests for each worker, per second; default 5.
	WorkerQPS float64
	// WorkerLostTimeout of MultiKueue; default 15 min.
	WorkerLostTimeout time.Duration
	// HubPodsReadyTimeout of the hub's Kueue. Default 30 min; negative = off.
	HubPodsReadyTimeout time.Duration
	// OtherCheckDelay is the time that checks of other controllers take.
	OtherCheckDelay time.Duration
	// KeepsFinished is for how long a finished job exists (ttlSecondsAfterFinished); zero = for ever.
	KeepsFinished time.Duration
	// CheckInterval is the time between two checks of the invariants; default 5 s.
	CheckInterval time.Duration
	// Standbys are processes of the operator beside the one that leads.
	Standbys int
	// Reclaim is the spec of a ReclaimPolicy for all queues; nil = none. Its references are set by the world.
	Reclaim *v1alpha1.ReclaimPolicySpec
	// Trial is the spec of a TrialPolicy for the jobs of all queues but that of its copies; nil = none. Its references
	// are set by the world.
	Trial *v1alpha1.TrialPolicySpec
	// Capacity is the spec of a CapacityPolicy; nil = none. Its source is set by the world.
	Capacity *v1alpha1.CapacityPolicySpec
	// GateFirst: the gate decides the workloads of all queues before Kueue reserves quota for them. A policy creates them
	// inactive.
	GateFirst bool
	// QueryTime is the mean time that the metrics store takes for a query; default 50 ms.
	QueryTime time.Duration
}
