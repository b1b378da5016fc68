package gate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Names of a gate's queries. The query of a requirement is named "requirements/" and the
// requirement's name.
const (
	QueryFit          = "fit"
	QueryDeviceFit    = "deviceFit"
	QueryRequestFit   = "requestFit"
	QueryMeasured     = "measured"
	QueryLargest      = "largest"
	QueryEmptyFit     = "emptyFit"
	QueryLargestNode  = "largestNode"
	QueryHeadroom     = "headroom"
	QueryCapacity     = "capacity"
	QueryPreference   = "preference"
	QueryExcess       = "excess"
	QuerySampleTime   = "sampleTime"
	QueryQuotaTime    = "quotaTime"
	QueryQuota        = "quota"
	QueryQuotaLimit   = "quotaLimit"
	QueryCPUQuota     = "cpuQuota"
	QueryMemoryQuota  = "memoryQuota"
	QueryKueueMetrics = "kueue"
	QueryLocalQueues  = "localQueues"
	QueryNominalQuota = "nominalQuota"
	QueryBorrowed     = "borrowed"
)

// Query is one PromQL query of a gate.
type Query struct {
	Name string
	// Expr is the expression, for pods with CPU and memory on nodes with whatever labels. It may use Variables.
	Expr string
	// Default replaces Expr for a workload without the profile values that Expr uses. If it is
	// empty, such a workload does without the query.
	Default string
	// Requirement that the query decides; nil for other queries.
	Requirement *v1alpha1.GateRequirement
	// PerShape queries run once for each pod set.
	PerShape bool
	// Remote queries run only for workloads that MultiKueue copies.
	Remote bool
	// Reclaims queries run only for workloads that may reclaim quota.
	Reclaims bool
	// PerQueue queries return one series for each ClusterQueue of a cluster.
	PerQueue bool
	// Prerequisite is the kind of objects that the query is about; empty for other queries.
	Prerequisite v1alpha1.PrerequisiteKind
	// of returns Expr for a pod set; empty = not queried. Nil if Expr does not depend on the pod set.
	of func(shape.PodSet) string
	// ObjectLabel is the label with the object's name, if the query returns one series for each
	// object. The other query for a prerequisite returns the clusters that report any object of
	// the kind, in whatever namespace.
	ObjectLabel string
}

// For returns the query for a pod set. It returns false if none is needed.
func (q Query) For(p shape.PodSet) (Query, bool) {
	if q.of != nil {
		q.Expr = q.of(p)
	}
	return q, q.Expr != ""
}

// Variables returns the names of the variables that the query may use. A workload may have no
// profile, so profiles are for requirements, which then do not apply, and for queries that only rank
// clusters.
func (q *Query) Variables() []string {
	if q.Requirement != nil || slices.Contains([]string{QueryHeadroom, QueryCapacity, QueryPreference}, q.Name) {
		return slices.Concat(shape.Variables, shape.ProfileVariables)
	}
	return shape.Variables
}

// AnyNamespace reports whether the query is rendered without $namespace.
func (q *Query) AnyNamespace() bool { return q.Prerequisite != "" && q.ObjectLabel == "" }

// Queries returns the queries of a gate, those for times first. Fields that the gate leaves empty default
// to the shipped recording rules. label is the series label with the cluster's name.
func Queries(spec *v1alpha1.PlacementGateSpec, label string) []Query {
	headroom := fmt.Sprintf(`sum by (%s) (cluster_resource_model:plimsoll_free_devices:sum{resource="$resource",model="$model"})`, label)
	capacity := fmt.Sprintf(`sum by (%s) (cluster_resource_model:plimsoll_devices:sum{resource="$resource",model="$model"})`, label)
	list := []Query{
		{Name: QuerySampleTime, Expr: cmp.Or(spec.Queries.SampleTime, fmt.Sprintf(`min by (%s) (cluster:plimsoll_sample_timestamp_seconds:min)`, label))},
	}
	if spec.Queries.Quota == "" {
		// Prometheus scrapes Kueue and the nodes at other times, and evaluates their rules in other groups.
		list = append(list, Query{Name: QueryQuotaTime, Remote: true, Expr: fmt.Sprintf(`min by (%s) (cluster:kueue_sample_timestamp_seconds:min)`, label)})
	}
	if spec.Queries.Fit == "" {
		list = append(list, Query{Name: QueryExcess, Expr: fmt.Sprintf(`max by (%s) (node_resource_state:plimsoll_excess_devices:sum)`, label)})
	}
	list = append(list, fitQueries(spec, label)...)
	list = append(list, []Query{
		{Name: QueryHeadroom, PerShape: true, Expr: cmp.Or(spec.Queries.Headroom, headroom), Default: headroom},
		{Name: QueryCapacity, PerShape: true, Expr: cmp.Or(spec.Queries.Capacity, capacity), Default: capacity},
		{Name: QueryLargest, PerShape: true, Expr: fmt.Sprintf(
			`max by (%s) (cluster_resource_model:plimsoll_node_free_devices:max{resource="$resource",model="$model"})`, label)},
	}...)
	list = append(list, quotaQueries(spec, label)...)
	list = append(list,
		Query{Name: QueryNominalQuota, PerShape: true, Remote: true, Reclaims: true, PerQueue: true, Expr: byQueue("cluster_queue:kueue_nominal_unreserved_quota:max", "$resource", label)},
		Query{Name: QueryBorrowed, PerShape: true, Remote: true, Reclaims: true, PerQueue: true, Expr: borrowedByQueue(label)})
	if spec.Queries.Preference != "" {
		list = append(list, Query{Name: QueryPreference, Expr: spec.Queries.Preference})
	}
	for i := range spec.Requirements {
		c := &spec.Requirements[i]
		list = append(list, Query{Name: "requirements/" + c.Name, Expr: c.Query, Requirement: c, PerShape: true})
	}
	list = append(list, prerequisiteQueries(spec, label)...)
	for i, q := range list {
		list[i], _ = q.For(shape.PodSet{Requests: shape.Requests{MilliCPU: 1, Memory: 1}})
	}
	return list
}

// quotaQueries return the unreserved quota of the worker's ClusterQueues, of which Candidate.ClusterQueue
// counts: the LocalQueues are from another query. If the queue has a flavor with the hub
// flavor's name, only this flavor counts.
//
// One more query returns whether the worker's Kueue exports quotas at all. A worker
// without the queue can then be distinguished from a worker without Kueue metrics. If the
// gate has its own quota query, the two cases cannot be distinguished.
func quotaQueries(spec *v1alpha1.PlacementGateSpec, label string) []Query {
	if spec.Queries.Quota != "" {
		return []Query{{Name: QueryQuota, PerShape: true, Remote: true, Expr: spec.Queries.Quota}}
	}
	return []Query{
		{Name: QueryQuota, PerShape: true, Remote: true, PerQueue: true, Expr: byQueue(unreservedQuota, "$resource", label)},
		{Name: QueryQuotaLimit, PerShape: true, Remote: true, PerQueue: true, Expr: byQueue("cluster_queue:kueue_quota_limit:max", "$resource", label)},
		{Name: QueryCPUQuota, PerShape: true, Remote: true, PerQueue: true, of: func(p shape.PodSet) string { return quotaFor(p.Requests.MilliCPU, "cpu", label) }},
		{Name: QueryMemoryQuota, PerShape: true, Remote: true, PerQueue: true, of: func(p shape.PodSet) string { return quotaFor(p.Requests.Memory, "memory", label) }},
		{Name: QueryKueueMetrics, Remote: true, Expr: fmt.Sprintf(`count by (%s) (%s)`, label, unreservedQuota)},
		{Name: QueryLocalQueues, Remote: true, Expr: fmt.Sprintf(
			`group by (%s, %s, %s, %s) (kube_localqueue_info{exported_namespace=""})`, label, LabelNamespace, LabelLocalQueue, LabelClusterQueue)},
	}
}

// quotaFor returns the query for the unreserved quota of a resource, or none if the pods request nothing of it.
func quotaFor(request int64, resource, label string) string {
	if request == 0 {
		return ""
	}
	return byQueue(unreservedQuota, resource, label)
}

// unreservedQuota is the recording rule for the quota that a ClusterQueue may still reserve.
const unreservedQuota = "cluster_queue:kueue_unreserved_quota:max"

// byQueue returns the query for a recording rule about the worker's queues, in the flavor with the hub
// flavor's name if the queue has one.
func byQueue(rule, resource, label string) string {
	return fmt.Sprintf(`sum by (%[1]s, %[2]s) (%[3]s,flavor="$flavor"}) or sum by (%[1]s, %[2]s) (%[3]s})`, label, LabelClusterQueue,
		fmt.Sprintf(`%s{resource=%q`, rule, resource))
}

// borrowedByQueue returns the query for the quota that each ClusterQueue of a worker borrows, in
// the flavor with the hub flavor's name if the worker has one.
func borrowedByQueue(label string) string {
	const rule = `cluster_queue:kueue_nominal_unreserved_quota:max{resource="$resource"`
	return fmt.Sprintf(`sum by (%[1]s, %[2]s) (-%[3]s,flavor="$flavor"} > 0) or sum by (%[1]s, %[2]s) (-%[3]s} > 0) unless on (%[1]s) %[3]s,flavor="$flavor"}`,
		label, LabelClusterQueue, rule)
}

// Labels of the ClusterQueue in series of PerQueue queries, and of the LocalQueue in those of QueryLocalQueues.
const (
	LabelClusterQueue = "cluster_queue"
	LabelLocalQueue   = "localqueue"
)

// maxAwaitedOwners is the number of owners up to which HolderQuery selects them by name.
const maxAwaitedOwners = 100

// Labels of HolderQuery's series, beside the cluster's.
const (
	LabelNamespace = "namespace"
	LabelOwnerKind = "owner_kind"
	LabelOwnerName = "owner_name"
)

// HolderQuery returns the query for the number of pods of owners that hold devices. With many
// owners, it returns those of all owners.
func HolderQuery(label string, owners []ledger.Owner) string {
	selector := ""
	if len(owners) <= maxAwaitedOwners {
		var names []string
		for _, o := range owners {
			names = append(names, regexp.QuoteMeta(o.Name))
		}
		selector = fmt.Sprintf(`{%s=~%q}`, LabelOwnerName, strings.Join(names, "|"))
	}
	return fmt.Sprintf(`count by (%[1]s, %[2]s, %[3]s, %[4]s) (group by (%[1]s, %[2]s, %[3]s, %[4]s, pod) (plimsoll_pod_owner_info%[5]s))`,
		label, LabelNamespace, LabelOwnerKind, LabelOwnerName, selector)
}

// OwnersReportedQuery returns the query for the clusters whose exporters report the owners of
// all pods that hold devices. An exporter that queries the API server need not report owners: the
// owner of at least one pod has to be shown.
func OwnersReportedQuery(label string) string {
	return fmt.Sprintf(`min by (%[1]s) (plimsoll_exporter_api_server_reachable) == 1 and on (%[1]s) group by (%[1]s) (plimsoll_pod_owner_info)`, label)
}
