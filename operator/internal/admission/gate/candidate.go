package gate

import (
	"cmp"
	"math"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Number is a query result that may be missing. A missing result never counts as 0.
type Number struct {
	Value float64 `json:"value"`
	Known bool    `json:"known"`
}

// Known returns a Number with a value.
func Known(v float64) Number { return Number{Value: v, Known: true} }

// compare orders numbers by value. An unknown one comes before all others.
func (n Number) compare(other Number) int {
	return cmp.Or(cmp.Compare(knownRank(n), knownRank(other)), cmp.Compare(n.Value, other.Value))
}

func knownRank(n Number) int {
	if n.Known {
		return 1
	}
	return 0
}

// ShapeMetrics are the query results of one cluster for one pod set.
type ShapeMetrics struct {
	// Fit is the number of pods that could start now.
	Fit Number `json:"fit"`
	// DeviceFit is the number of pods that could start now by devices alone. Unknown if the gate has its own query fit.
	DeviceFit Number `json:"deviceFit,omitzero"`
	// RequestFit is the number of pods that could start now by CPU and memory alone, on nodes with devices for one.
	RequestFit Number `json:"requestFit,omitzero"`
	// Measured is what the cluster reports of its nodes beside devices, by name. Nil means unknown.
	Measured map[string]bool `json:"measured,omitzero"`
	// EmptyFit is the number of pods that could start if the cluster were empty.
	EmptyFit Number `json:"emptyFit,omitzero"`
	// EmptyFitUncertain is true if the query emptyFit fails, or its response may lack data of the cluster.
	EmptyFitUncertain bool `json:"emptyFitUncertain,omitempty"`
	// LargestNode is the number of devices on the cluster's largest node. Only messages use it.
	LargestNode Number `json:"largestNode,omitzero"`
	// Largest is the number of free devices on the cluster's best node. Only messages use it.
	Largest Number `json:"largest"`
	// Headroom is the number of free devices.
	Headroom Number `json:"headroom"`
	// Capacity is the number of devices, free or not.
	Capacity Number `json:"capacity"`
	// Quota is the number of devices that the worker's queue may still reserve.
	Quota Number `json:"quota"`
	// CPUQuota and MemoryQuota are the cores and bytes that the worker's queue may still reserve. They are unknown if it has
	// no quota for these resources: Kueue may be configured to ignore them.
	CPUQuota    Number `json:"cpuQuota,omitzero"`
	MemoryQuota Number `json:"memoryQuota,omitzero"`
	// NominalQuota is the number of devices that the worker's queue may still reserve without
	// borrowing. It is queried for workloads that may reclaim quota.
	NominalQuota Number `json:"nominalQuota,omitzero"`
	// Borrowed is the number of devices for which each ClusterQueue borrows quota on the worker. It
	// is queried for workloads that may reclaim quota.
	Borrowed map[string]Number `json:"borrowed,omitempty"`
	// QuotaLimit is the number of devices that the worker's queue could reserve if nothing were reserved.
	QuotaLimit Number `json:"quotaLimit,omitzero"`
	// QuotaFailed is true if the quota query has no valid result.
	QuotaFailed bool `json:"quotaFailed,omitempty"`
	// QueueMissing is true if Kueue on the worker exports quotas, but none for the ClusterQueue
	// and the resource.
	QueueMissing bool `json:"queueMissing,omitempty"`
}

// Candidate is a cluster that the gate's Placement has decided, with its metrics.
type Candidate struct {
	Name string `json:"name"`
	// Excluded are the reasons why the workload can't be sent to the cluster, whatever its metrics say. The first
	// counts. Empty means usable.
	Excluded []BrokenRule `json:"excluded,omitempty"`
	// LastResort is why the workload is sent to the cluster only if no other one could hold it. Empty means that it
	// is as good as others.
	LastResort string `json:"lastResort,omitempty"`
	// Outside is true if the cluster is usable only once the MultiKueueConfig, which has no place
	// for all clusters, contains it.
	Outside bool `json:"outside,omitempty"`
	// Scores by ScoreKey.
	Scores map[string]Score `json:"scores,omitempty"`
	// SampledAt is the time of the oldest trusted sample. Zero means unknown.
	SampledAt time.Time `json:"sampledAt,omitzero"`
	// QuotaSampledAt is the time of the oldest sample behind the quota. Zero means unknown.
	QuotaSampledAt time.Time `json:"quotaSampledAt,omitzero"`
	// LocalQueues are the ClusterQueues of the worker's LocalQueues, by namespace/name. Nil means that the cluster does
	// not report them.
	LocalQueues map[string]string `json:"localQueues,omitempty"`
	// Preference is how well the cluster suits the workload, by the gate's query.
	Preference Number `json:"preference,omitzero"`
	// Excess is the number of devices that an exporter of the cluster reports and its kube-state-metrics does not.
	Excess Number `json:"excess,omitzero"`
	// Shapes holds the metrics for each of the workload's pod sets, in their order.
	Shapes []ShapeMetrics `json:"shapes"`
	// Requirements are the results of the gate's requirements with scope Cluster.
	Requirements []RequirementResult `json:"requirements,omitempty"`
	// Prerequisites are the existing objects by kind, for the kinds that the gate tests.
	Prerequisites []PrerequisiteResult `json:"prerequisites,omitempty"`
}

// Fleet holds the metrics that concern all clusters together.
type Fleet struct {
	// Requirements are the results of the gate's requirements with scope Fleet.
	Requirements []RequirementResult `json:"requirements,omitempty"`
	// SkippedRequirements are the names of the requirements that do not apply, because the workload has
	// no profile with the values that their queries use.
	SkippedRequirements []string `json:"skippedRequirements,omitempty"`
	// Incomplete is true if a query result may lack clusters, or if the room of a cluster is
	// not a number.
	Incomplete bool `json:"incomplete,omitempty"`
	// Problem describes the failure of a query that the decision needs. Empty means none.
	Problem string `json:"problem,omitempty"`
	// FailingSince is when the query behind Problem started to fail. If several queries fail,
	// it is the latest of their times.
	FailingSince time.Time `json:"failingSince,omitzero"`
}

// ClusterQueue returns the worker's ClusterQueue for workloads of a queue of the hub. If the cluster does not report that of
// the LocalQueue, it is assumed to have the name of the hub's.
func (c *Candidate) ClusterQueue(q ledger.Queue) string {
	return cmp.Or(c.LocalQueues[q.Local], q.Cluster)
}

// Exclude adds a reason why the workload can't be sent to the cluster. detail completes the message of the rejection.
func (c *Candidate) Exclude(r Rejection, detail string) {
	c.Excluded = append(c.Excluded, BrokenRule{r, detail})
}

// couldHold reports whether the nodes could hold all pods if they were empty. Without metrics, nobody knows.
func (c *Candidate) couldHold(podSets []shape.PodSet) bool {
	if len(c.Shapes) != len(podSets) {
		return false
	}
	for i := range podSets {
		if !c.couldHoldSet(podSets, i) {
			return false
		}
	}
	return true
}

// couldHoldSet reports whether the empty nodes could hold the i-th pod set with those before it.
func (c *Candidate) couldHoldSet(podSets []shape.PodSet, i int) bool {
	empty, taken := c.Shapes[i].EmptyFit, float64(ledger.SlotsTaken(podSets[:i], podSets[i], 0))
	return empty.Known && math.Floor(empty.Value)-taken >= float64(podSets[i].Pods)
}
