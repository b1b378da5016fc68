package gate

import (
	"cmp"
	"fmt"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Names of a gate's questions; a condition's is its own name behind "conditions/".
const (
	QueryFit          = "fit"
	QueryLargest      = "largest"
	QueryHeadroom     = "headroom"
	QueryCapacity     = "capacity"
	QueryQueued       = "queued"
	QuerySampleTime   = "sampleTime"
	QueryQuota        = "quota"
	QueryKueueMetrics = "kueue"
)

// Question that a gate asks about a workload's shape.
type Query struct {
	Name string
	// Expr may use Variables.
	Expr string
	// Condition that the answer decides; nil for the other questions.
	Condition *v1alpha1.GateCondition
	// PerShape questions are asked once for each pod set.
	PerShape bool
	// Remote questions are asked only of workloads that MultiKueue copies.
	Remote bool
}

// Questions of a gate, with the shipped defaults over the recording rules where
// it states none. label is the series label that names the cluster.
func Queries(spec *v1alpha1.PlacementGateSpec, label string) []Query {
	list := []Query{
		{Name: QuerySampleTime, Expr: cmp.Or(spec.Queries.SampleTime, fmt.Sprintf(`min by (%s) (cluster:plimsoll_sample_timestamp_seconds:min)`, label))},
		{Name: QueryFit, PerShape: true, Expr: cmp.Or(spec.Queries.Fit, fmt.Sprintf(
			`sum by (%s) (floor(node:plimsoll_free_devices:placeable{resource="$resource",model="$model"} / $devices_per_pod))`, label))},
		{Name: QueryHeadroom, PerShape: true, Expr: cmp.Or(spec.Queries.Headroom, fmt.Sprintf(
			`sum by (%s) (cluster_model:plimsoll_free_devices:sum{resource="$resource",model="$model"})`, label))},
		{Name: QueryCapacity, PerShape: true, Expr: cmp.Or(spec.Queries.Capacity, fmt.Sprintf(
			`sum by (%s) (cluster_model:plimsoll_devices:sum{resource="$resource",model="$model"})`, label))},
		// What each cluster's best node has free, to say what is missing.
		{Name: QueryLargest, PerShape: true, Expr: fmt.Sprintf(
			`max by (%s) (cluster_model:plimsoll_node_free_devices:max{resource="$resource",model="$model"})`, label)},
	}
	list = append(list, quotaQueries(spec, label)...)
	if spec.Queries.Queued != "" {
		list = append(list, Query{Name: QueryQueued, PerShape: true, Expr: spec.Queries.Queued})
	}
	for i := range spec.Conditions {
		c := &spec.Conditions[i]
		list = append(list, Query{Name: "conditions/" + c.Name, Expr: c.Query, Condition: c, PerShape: true})
	}
	return list
}

// quota questions: what the queue of the hub's name may still reserve in each
// cluster, of the flavor of the hub's name if there is one. Where that is absent,
// the second tells a cluster without such a queue from one whose Kueue exports no
// quotas; with a query of the gate's own nobody can tell.
func quotaQueries(spec *v1alpha1.PlacementGateSpec, label string) []Query {
	if spec.Queries.Quota != "" {
		return []Query{{Name: QueryQuota, PerShape: true, Remote: true, Expr: spec.Queries.Quota}}
	}
	const queue = `cluster_queue:kueue_unreserved_quota:max{cluster_queue="$cluster_queue",resource="$resource"`
	return []Query{
		{Name: QueryQuota, PerShape: true, Remote: true, Expr: fmt.Sprintf(
			`sum by (%[1]s) (%[2]s,flavor="$flavor"}) or sum by (%[1]s) (%[2]s})`, label, queue)},
		{Name: QueryKueueMetrics, Remote: true, Expr: fmt.Sprintf(`count by (%s) (cluster_queue:kueue_unreserved_quota:max)`, label)},
	}
}
