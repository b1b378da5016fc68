package querycache

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// defaultClusterLabel is the cluster label of a source that does not exist or states none.
const defaultClusterLabel = "cluster"

// KeyOf returns the key of a workload at a gate. If the gate's source does not exist, the
// key has the default cluster label. Results reports a source that can't be used.
func (c *Cache) KeyOf(g gatestate.Gate, f shape.Facts) gatestate.QueryKey {
	source := g.Spec.SourceRef.Name
	_, info, _ := c.sources.For(source)
	return gatestate.QueryKey{
		Gate: g.Name, Namespace: f.Namespace, Source: source, SourceID: cmp.Or(info.Identity(), source), Version: gatestate.Version{UID: g.UID, Generation: g.Generation},
		ClusterLabel: cmp.Or(info.ClusterLabel, defaultClusterLabel), Facts: f.EquivalenceKey(),
	}
}

// queryPlan lists the rendered queries of a Key.
type queryPlan struct {
	key gatestate.QueryKey
	// ttl is the time for which the plan and its results are kept after their last use.
	ttl time.Duration
	// queries in the order of execution. The first returns the sample times, and the second those of the
	// quota if the plan queries them.
	queries []renderedQuery
	// skippedRequirements are the names of the requirements that do not apply to these facts.
	skippedRequirements []string
	usedAt              time.Time
	// refreshAfter is the oldest permitted start of the queries after the next refresh.
	refreshAfter time.Time
	// completedAt is the end of the last refresh.
	completedAt time.Time
}

// renderedQuery is a query of the gate for one pod set.
type renderedQuery struct {
	gate.Query
	// podSet is the index of the pod set in the facts.
	podSet int
	expr   string
	// cacheKey identifies the result in the cache.
	cacheKey string
	// ttl of the plan.
	ttl time.Duration
	// renderError is the result if the query can't be rendered with the facts.
	renderError *cachedResult
	// lacksProfile is true if the query uses a value of a profile that the facts do not have. Such
	// a query does not run.
	lacksProfile bool
}

// plan returns the plan of a key, and creates it on the first use. Only one of several
// concurrent creators adds its plan: a plan holds the requests for refreshes.
func (c *Cache) plan(key gatestate.QueryKey, g gatestate.Gate, f shape.Facts) *queryPlan {
	if p := c.usePlan(key, nil); p != nil {
		return p
	}
	return c.usePlan(key, newPlan(key, g, f))
}

// usePlan returns the plan of a key. If there is none, it adds and returns created.
func (c *Cache) usePlan(key gatestate.QueryKey, created *queryPlan) *queryPlan {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.plans[key]
	if p == nil && created != nil {
		p = created
		c.plans[key] = p
	}
	if p != nil {
		p.usedAt = c.now()
	}
	return p
}

// lastCompleted returns the end of the plan's last refresh; zero = none yet.
func (c *Cache) lastCompleted(p *queryPlan) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.completedAt
}

// newPlan renders the gate's queries, with the cluster label of the source. A query per shape
// is rendered for each pod set, a requirement only for the first one, which has the most devices
// per pod. A prerequisite that the workload does not refer to is not queried, and neither is a
// requirement about a profile that the workload does not have.
func newPlan(key gatestate.QueryKey, g gatestate.Gate, f shape.Facts) *queryPlan {
	p := &queryPlan{key: key, ttl: ttlOf(&g.Spec)}
	for _, q := range gate.Queries(&g.Spec, key.ClusterLabel) {
		switch {
		case q.Remote && !f.Remote, q.Reclaims && !f.Reclaims:
		case q.Prerequisite != "" && !f.RefersTo(q.Prerequisite):
		case q.Requirement != nil || !q.PerShape:
			p.add(q, f, 0)
		default:
			for i := range f.PodSets {
				if ofPods, ok := q.For(f.PodSets[i]); ok {
					p.add(ofPods, f, i)
				}
			}
		}
	}
	return p
}

// add renders a query for a pod set. If the workload has no profile with the values that the query
// uses, the query's default takes its place.
func (p *queryPlan) add(q gate.Query, f shape.Facts, podSet int) {
	if r := p.render(q, f, podSet); !r.lacksProfile {
		p.queries = append(p.queries, r)
		return
	}
	if q.Requirement != nil {
		p.skippedRequirements = append(p.skippedRequirements, q.Requirement.Name)
	}
	if q.Expr = q.Default; q.Expr != "" {
		p.queries = append(p.queries, p.render(q, f, podSet))
	}
}

// hasQuotaTimes reports whether the second query returns the sample times of the quota. A gate with its
// own quota query has none, and neither have workloads that MultiKueue does not copy.
func (p *queryPlan) hasQuotaTimes() bool {
	return len(p.queries) > 1 && p.queries[1].Name == gate.QueryQuotaTime
}

// ttlOf returns the time for which the results of a gate are kept after their last use:
// at least as long as decisions may use them. With onStale Open, decisions also depend on
// how long a query has failed, up to unknownAfterSeconds.
func ttlOf(spec *v1alpha1.PlacementGateSpec) time.Duration {
	ttl := max(timing.UnusedResultTTL, timing.Seconds(spec.Freshness.MaxSampleAgeSeconds, timing.DefaultMaxSampleAge))
	if spec.Freshness.OnStale == v1alpha1.StaleOpen {
		ttl = max(ttl, timing.Seconds(spec.Freshness.UnknownAfterSeconds, timing.DefaultUnknownAfter))
	}
	return ttl
}

func (p *queryPlan) render(q gate.Query, f shape.Facts, podSet int) renderedQuery {
	r := renderedQuery{Query: q, podSet: podSet, ttl: p.ttl}
	var pods shape.PodSet
	if podSet < len(f.PodSets) {
		pods = f.PodSets[podSet]
	}
	text, _ := promql.ExpandClusterLabel(q.Expr, p.key.ClusterLabel)
	template, problems := promql.ParseTemplate(text, q.Variables())
	if len(problems) > 0 {
		r.renderError = &cachedResult{err: errors.New(promql.Strings(problems))}
		return r
	}
	vars := f.Vars(pods)
	if r.lacksProfile = lacksProfile(template.Vars(), vars); r.lacksProfile {
		return r
	}
	if q.AnyNamespace() {
		delete(vars, "namespace")
	}
	expr, err := template.Render(vars)
	if err != nil {
		r.renderError = &cachedResult{err: err}
		return r
	}
	r.expr, r.cacheKey = expr, p.key.SourceID+"\x00"+expr
	if r.measuresRoom() {
		r.cacheKey += "\x00" + p.queries[0].expr // the result keeps the sample times of this plan
	}
	return r
}

// lacksProfile reports whether one of the used variables is about the profile and has no value.
func lacksProfile(used []string, vars map[string]string) bool {
	return slices.ContainsFunc(used, func(name string) bool {
		return vars[name] == "" && slices.Contains(shape.ProfileVariables, name)
	})
}

// decidesAdmission reports whether the query decides which clusters may take a workload.
// Results of these queries keep their age for the gate's decision. The other queries rank
// clusters and complete messages.
func (q *renderedQuery) decidesAdmission() bool {
	return q.Requirement != nil || q.Name == gate.QuerySampleTime || q.measuresRoom()
}

// measuresRoom reports whether the ledger is subtracted from the query's result. Such a
// result is only usable with the sample times that were known when it was queried.
func (q *renderedQuery) measuresRoom() bool {
	return q.Name == gate.QueryFit || q.returnsQuota()
}

// returnsQuota reports whether the query returns what queues may still reserve.
func (q *renderedQuery) returnsQuota() bool {
	return q.Name == gate.QueryQuota || q.Name == gate.QueryCPUQuota || q.Name == gate.QueryMemoryQuota
}

// isFleetScoped reports whether the query is a requirement on the fleet as a whole.
func (q *renderedQuery) isFleetScoped() bool {
	return q.Requirement != nil && q.Requirement.Scope == v1alpha1.ScopeFleet
}
