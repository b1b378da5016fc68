package reclaimpolicy

import (
	"context"
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// measurement is what one round measured.
type measurement struct {
	// isNeeded is false if no workload agreed to be reclaimed, so that nothing was queried.
	isNeeded bool
	// failure is why the source has no usable response, and invalid the parse errors.
	failure string
	invalid []string
	// stale are clusters without fresh metrics.
	stale []string
	// querier and mapping serve the queries of moves; nil if nothing was measured.
	querier query.Querier
	mapping *clustermap.Mapping
}

// measure sets the idle times of the candidates' devices. Candidates on clusters without fresh
// metrics, and all candidates after a failed query, have none. A failure of the source is part
// of the measurement, an error is a failure of the hub.
func (r *Reconciler) measure(ctx context.Context, policy *v1alpha1.ReclaimPolicy, candidates []*reclaim.Candidate, now time.Time) (*measurement, error) {
	m := &measurement{}
	clusters := map[string]bool{}
	for _, c := range candidates {
		if c.Owner.Cluster != "" {
			clusters[c.Owner.Cluster] = true
		}
	}
	querier, info, unusable, err := hubstate.Source(ctx, r.client, r.sources, policy.Spec.SourceRef.Name)
	if err != nil {
		return nil, err
	}
	if unusable != nil {
		m.failure = unusable.Error()
		return m, nil
	}
	freshness := reclaim.FreshnessOf(&policy.Spec)
	ageExpr := m.expand("freshness.query", freshness.Query, info.ClusterLabel)
	idleExpr := m.expand("idleQuery", reclaim.IdleQueryOf(&policy.Spec), info.ClusterLabel)
	if len(m.invalid) > 0 || len(clusters) == 0 {
		return m, nil
	}
	m.isNeeded = true
	members, err := hubstate.ManagedClusters(ctx, r.client)
	if err != nil {
		return nil, err
	}
	mapping := clustermap.New(members, info).Select(slices.Sorted(maps.Keys(clusters)))
	m.querier, m.mapping = querier, mapping
	ctx, cancel := context.WithTimeout(query.WithAllLabels(query.ForClusters(ctx, mapping.Names())), roundLimit(policy))
	defer cancel()
	ages, ok := m.query(ctx, querier, "freshness.query", ageExpr, now)
	if !ok {
		return m, nil
	}
	fresh := m.freshClusters(mapping, ages, float64(freshness.MaxAgeSeconds))
	samples, ok := m.query(ctx, querier, "idleQuery", idleExpr, now)
	if !ok {
		return m, nil
	}
	idle := idleByOwner(mapping, samples)
	for _, c := range candidates {
		if fresh[c.Owner.Cluster] {
			c.Idle = idle[c.Owner]
		}
	}
	return m, nil
}

// expand replaces the variable of the cluster label and checks the expression.
func (m *measurement) expand(field, expr, clusterLabel string) string {
	expr, _ = promql.ExpandClusterLabel(expr, clusterLabel)
	if problems := promql.Check(expr); problems != nil {
		m.invalid = append(m.invalid, field+": "+promql.Strings(problems))
	}
	return expr
}

// query returns the samples of a complete response. Otherwise it records the reason.
func (m *measurement) query(ctx context.Context, querier query.Querier, field, expr string, at time.Time) ([]query.Sample, bool) {
	response, err := querier.Query(ctx, expr, at)
	switch {
	case err != nil:
		m.failure = field + ": " + err.Error()
		return nil, false
	case response.Partial:
		m.failure = field + ": some stores of the source did not respond: " + response.PartialReason
		return nil, false
	}
	return response.Samples, true
}

// freshClusters returns the clusters whose samples are young enough. A cluster of unknown age is
// not, and neither is one with samples from the future: their age is wrong.
func (m *measurement) freshClusters(mapping *clustermap.Mapping, ages []query.Sample, maxAge float64) map[string]bool {
	fresh, byCluster := map[string]bool{}, mapping.Group(ages).ByCluster()
	for _, name := range mapping.Names() {
		if age := byCluster[name]; age.Outcome == clustermap.Found && age.Value <= maxAge && age.Value >= -timing.MaxClockSkew.Seconds() {
			fresh[name] = true
		} else {
			m.stale = append(m.stale, name)
		}
	}
	return fresh
}

// idleByOwner returns the idle times of each owner's devices. If several series show a device, the
// shortest time counts. A sample without a known cluster, node and UUID, and a value that is no time,
// counts for no device.
func idleByOwner(mapping *clustermap.Mapping, samples []query.Sample) map[reclaim.Owner][]time.Duration {
	type device struct{ node, uuid string }
	shortest := map[reclaim.Owner]map[device]time.Duration{}
	for _, s := range samples {
		cluster, ok := mapping.Cluster(s.Label(mapping.Label()))
		d := device{node: s.Label(reclaim.LabelNode), uuid: s.Label(reclaim.LabelUUID)}
		if !ok || d.node == "" || d.uuid == "" || !(s.Value >= 0 && s.Value <= maxIdleSeconds) { // also false for NaN
			continue
		}
		owner := reclaim.Owner{Cluster: cluster, Namespace: s.Label(reclaim.LabelNamespace), Kind: s.Label(reclaim.LabelOwnerKind), Name: s.Label(reclaim.LabelOwnerName)}
		if shortest[owner] == nil {
			shortest[owner] = map[device]time.Duration{}
		}
		idle := time.Duration(s.Value * float64(time.Second))
		if known, ok := shortest[owner][d]; !ok || idle < known {
			shortest[owner][d] = idle
		}
	}
	idle := map[reclaim.Owner][]time.Duration{}
	for owner, devices := range shortest {
		idle[owner] = slices.Sorted(maps.Values(devices))
	}
	return idle
}

// maxIdleSeconds is the longest idle time that counts, so that a time fits a time.Duration: a
// hundred years.
const maxIdleSeconds = 100 * 365 * 24 * 3600
