package capacitypolicy

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/capacity"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

const (
	// maxClusters is the number of clusters that the status of a quota can hold.
	maxClusters = 500
	// maxStatusEntries is the number of clusters of all quotas together: the whole object must fit into
	// etcd, with the fields of each entry in managedFields.
	maxStatusEntries = 3000
)

// clusterLimit returns how many clusters a policy with this number of quotas can select.
func clusterLimit(quotas int) int {
	return min(maxClusters, maxStatusEntries/max(quotas, 1))
}

// Reasons why the number of a cluster is unknown. ClusterCapacity.reason has these values.
const (
	reasonDisconnected   = "Disconnected"
	reasonNoSample       = "NoSample"
	reasonQueryFailed    = "QueryFailed" // of the cluster's own endpoint
	reasonStale          = "Stale"
	reasonSharedLabel    = "SharedLabel"
	reasonSeveralSamples = "SeveralSamples"
	reasonNotANumber     = "NotANumber"
)

// measurement is what one round measured.
type measurement struct {
	// readings are in the order of spec.quotas.
	readings []capacity.Reading
	// failures are the reasons why whole readings are unusable.
	failures []string
	// invalid are the parse errors of the queries.
	invalid []string
	// tooMany is the number of selected clusters if it is above clusterLimit, else 0.
	tooMany int
}

// measurer sends the queries of one round.
type measurer struct {
	querier  query.Querier
	clusters *clustermap.Mapping
	// clusterLabel of the source, for the variable $cluster_label.
	clusterLabel string
	// unusable maps clusters to the reason why their numbers don't count.
	unusable map[string]string
	now      time.Time
	result   *measurement
}

// measure queries the source. A failure of the source is part of the measurement, an error
// is a failure of the hub.
func (r *Reconciler) measure(ctx context.Context, policy *v1alpha1.CapacityPolicy, now time.Time) (*measurement, error) {
	m := &measurer{now: now, result: &measurement{readings: make([]capacity.Reading, len(policy.Spec.Quotas))}}
	for i := range m.result.readings {
		m.result.readings[i].Failed = true
	}
	querier, info, unusable, err := hubstate.Source(ctx, r.client, r.sources, policy.Spec.SourceRef.Name)
	if err != nil {
		return nil, err
	}
	if unusable != nil {
		m.result.failures = []string{unusable.Error()}
		return m.result, nil
	}
	m.querier = querier
	if err := m.selectClusters(ctx, r.client, policy, info); err != nil || m.result.tooMany > 0 {
		return m.result, err
	}
	ctx, cancel := context.WithTimeout(query.ForClusters(ctx, m.clusters.Names()), min(seconds(policy.Spec.PeriodSeconds, 60), timing.MaxRound))
	defer cancel()
	if !m.readFreshness(ctx, policy.Spec.Freshness) {
		return m.result, nil
	}
	for i := range policy.Spec.Quotas {
		m.result.readings[i] = m.readQuota(ctx, &policy.Spec.Quotas[i])
	}
	return m.result, nil
}

// selectClusters sets the clusters of the policy, and marks those that are disconnected.
func (m *measurer) selectClusters(ctx context.Context, hub client.Reader, policy *v1alpha1.CapacityPolicy, info query.SourceInfo) error {
	members, err := hubstate.ManagedClusters(ctx, hub)
	if err != nil {
		return err
	}
	selected, err := hubstate.SelectNames(members, policy.Spec.ClusterSelector)
	if err != nil {
		m.result.failures = []string{"clusterSelector: " + err.Error()}
		selected = nil
	}
	if len(selected) > clusterLimit(len(policy.Spec.Quotas)) {
		m.result.tooMany = len(selected)
	}
	m.clusterLabel = info.ClusterLabel
	m.clusters, m.unusable = clustermap.New(members, info).Select(selected), map[string]string{}
	for i := range members {
		if !meta.IsStatusConditionTrue(members[i].Status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
			m.unusable[members[i].Name] = reasonDisconnected
		}
	}
	return nil
}

// readFreshness marks the clusters whose samples are too old. It returns false if the ages
// are unknown.
func (m *measurer) readFreshness(ctx context.Context, freshness *v1alpha1.Freshness) bool {
	if freshness == nil {
		return true
	}
	ages, ok := m.query(ctx, "freshness.query", cmp.Or(freshness.Query, v1alpha1.DefaultFreshnessQuery))
	if !ok {
		return false
	}
	maxAge := seconds(freshness.MaxAgeSeconds, 120).Seconds()
	for _, name := range m.clusters.Names() {
		age, failed := ages.of(name)
		isFresh := age.Outcome == clustermap.Found && age.Value <= maxAge && age.Value >= -timing.MaxClockSkew.Seconds()
		if m.unusable[name] == "" && !isFresh {
			m.unusable[name] = cmp.Or(failed, reasonStale)
		}
	}
	return true
}

// readQuota measures one quota. A response that has a number for no cluster counts as
// failed: a wrong query must not take the quota from every queue.
func (m *measurer) readQuota(ctx context.Context, quota *v1alpha1.MeasuredQuota) capacity.Reading {
	field := fmt.Sprintf("quotas[%s, %s].", quota.Flavor, quota.Resource)
	values, ok := m.query(ctx, field+"query", quota.Query)
	if !ok {
		return capacity.Reading{Failed: true}
	}
	reading, known := capacity.Reading{}, false
	for _, name := range m.clusters.Names() {
		value, failed := values.of(name)
		cluster := capacity.ClusterReading{Name: name, Devices: value.Value, Reason: cmp.Or(m.unusable[name], failed, reasonOf(value))}
		known = known || cluster.Reason == ""
		reading.Clusters = append(reading.Clusters, cluster)
	}
	if !known {
		m.fail(field+"query", "the response has a usable number for no connected cluster")
		return capacity.Reading{Failed: true}
	}
	unhealthy := m.readUnhealthy(ctx, field+"unhealthyQuery", quota.UnhealthyQuery)
	for i := range reading.Clusters {
		if c := &reading.Clusters[i]; c.Reason == "" {
			c.Unhealthy = unhealthy(c.Name)
		}
	}
	return reading
}

// readUnhealthy returns a function that returns the number of broken devices of a cluster. It is nil if
// there is no query, no response, or an unusable value. A cluster that responded without a sample has no
// broken device.
func (m *measurer) readUnhealthy(ctx context.Context, field, expr string) func(cluster string) *int64 {
	unknown := func(string) *int64 { return nil }
	if expr == "" {
		return unknown
	}
	values, ok := m.query(ctx, field, expr)
	if !ok {
		return unknown
	}
	return func(cluster string) *int64 {
		v, failed := values.of(cluster)
		switch cmp.Or(failed, reasonOf(v)) {
		case "":
			return new(int64(min(v.Value, math.MaxInt32)))
		case reasonNoSample:
			return new(int64)
		}
		return nil
	}
}

// response has the values of one query.
type response struct {
	values map[string]clustermap.Value // by cluster
	// failed maps clusters whose own endpoint failed to the message.
	failed map[string]string
}

// of returns the value of a cluster. failed is reasonQueryFailed if its own endpoint failed, and
// otherwise empty.
func (r response) of(cluster string) (v clustermap.Value, failed string) {
	if _, ok := r.failed[cluster]; ok {
		return clustermap.Value{}, reasonQueryFailed
	}
	return r.values[cluster], ""
}

// query returns the values of the clusters. It returns false, and records the reason, if there is no
// complete response.
func (m *measurer) query(ctx context.Context, field, expr string) (response, bool) {
	expr, _ = promql.ExpandClusterLabel(expr, m.clusterLabel)
	if problems := promql.Check(expr); problems != nil {
		m.result.invalid = append(m.result.invalid, field+": "+promql.Strings(problems))
		return response{}, false
	}
	result, err := m.querier.Query(ctx, expr, m.now)
	switch {
	case err != nil:
		m.fail(field, err.Error())
		return response{}, false
	case result.Partial:
		m.fail(field, "some stores of the source did not respond: "+result.PartialReason)
		return response{}, false
	}
	return response{m.clusters.Group(result.Samples).ByCluster(), result.Failed}, true
}

func (m *measurer) fail(field, reason string) {
	m.result.failures = append(m.result.failures, field+": "+reason)
}

// reasonOf returns why a value is no number of devices. It is empty if it is one.
func reasonOf(v clustermap.Value) string {
	switch v.Outcome {
	case clustermap.Found:
		if v.Value < 0 {
			return reasonNotANumber
		}
		return ""
	case clustermap.NaN, clustermap.Infinite:
		return reasonNotANumber
	case clustermap.Duplicate:
		return reasonSeveralSamples
	case clustermap.Ambiguous:
		return reasonSharedLabel
	default:
		return reasonNoSample
	}
}
