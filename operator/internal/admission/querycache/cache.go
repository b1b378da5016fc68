package querycache

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Cache holds query results and refreshes them. It is safe for concurrent use.
type Cache struct {
	sources *query.Sources
	ledger  *ledger.Ledger
	hub     client.Reader
	now     func() time.Time
	flights singleflight.Group

	mu          sync.Mutex
	onRefreshed func(key gatestate.QueryKey, newerThan time.Time)
	onFaults    func(faults map[string]gatestate.QueryFaults)
	// queues of keys to refresh, by source.
	queues map[string]workqueue.TypedInterface[gatestate.QueryKey]
	// startWorkers starts the workers of a queue. It is nil before Start and after its end.
	startWorkers func(workqueue.TypedInterface[gatestate.QueryKey])
	// results by renderedQuery.cacheKey.
	results map[string]*cachedResult
	plans   map[gatestate.QueryKey]*queryPlan
}

// New returns an empty cache. It reads the ManagedClusters from hub if the series of a
// source carry a label or claim of the cluster instead of its name. It expires the ledger's
// entries by the sample times of the cached results.
func New(sources *query.Sources, ledger *ledger.Ledger, hub client.Reader, now func() time.Time) *Cache {
	return &Cache{
		sources: sources, ledger: ledger, hub: hub, now: now,
		onRefreshed: func(gatestate.QueryKey, time.Time) {}, onFaults: func(map[string]gatestate.QueryFaults) {},
		queues: map[string]workqueue.TypedInterface[gatestate.QueryKey]{}, results: map[string]*cachedResult{}, plans: map[gatestate.QueryKey]*queryPlan{},
	}
}

// OnRefreshed sets the callback for completed refreshes: no result of the key is older than
// newerThan. Set it before Start.
func (c *Cache) OnRefreshed(f func(key gatestate.QueryKey, newerThan time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRefreshed = f
}

// OnFaults sets the callback for faults. Every timing.CleanupInterval the callback
// receives the faults of each gate that has any. Set it before Start.
func (c *Cache) OnFaults(f func(faults map[string]gatestate.QueryFaults)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onFaults = f
}

// Candidates returns the gate's clusters with the results of its queries for a workload, and the results that
// concern the fleet. Failures are part of the results.
//
// If the cache lacks a result, Candidates queries it and waits for at most
// timing.QueryTimeout. Other requests may wait for the same query, so the query continues
// if ctx is canceled.
func (c *Cache) Candidates(ctx context.Context, g gatestate.Gate, f shape.Facts) ([]gate.Candidate, gate.Fleet) {
	candidates, fleet, _ := c.fetchCandidates(context.WithoutCancel(ctx), g, f, false) // the error is that of the context
	return candidates, fleet
}

// CandidatesToExplain is Candidates for an explanation. Its queries end with ctx, and then it returns the error
// of ctx. No other request waits for them.
func (c *Cache) CandidatesToExplain(ctx context.Context, g gatestate.Gate, f shape.Facts) ([]gate.Candidate, gate.Fleet, error) {
	return c.fetchCandidates(ctx, g, f, true)
}

func (c *Cache) fetchCandidates(ctx context.Context, g gatestate.Gate, f shape.Facts, explains bool) ([]gate.Candidate, gate.Fleet, error) {
	key, now := c.KeyOf(g, f), c.now()
	maxSampleAge := timing.Seconds(g.Spec.Freshness.MaxSampleAgeSeconds, timing.DefaultMaxSampleAge)
	// With a long period, results must not become older than maxSampleAge while they are served.
	period := min(timing.Seconds(g.Spec.PeriodSeconds, timing.DefaultPeriod), maxSampleAge/2)
	p := c.plan(key, g, f)
	fetch := planFetch{cache: c, plan: p, explains: explains, isServable: func(r *cachedResult) bool { return r.isServable(period, now) }}
	results := fetch.queryPlan(ctx)
	if err := ctx.Err(); err != nil {
		return nil, gate.Fleet{}, err
	}
	isOld := func(r queryResult) bool {
		return r.renderError == nil && now.Sub(r.result.storedAt) >= timing.FreshResult
	}
	if slices.ContainsFunc(results, isOld) && now.Sub(c.lastCompleted(p)) >= timing.FreshResult {
		c.Refresh(key, now.Add(-timing.FreshResult))
	}
	fleet := fleetOf(results)
	fleet.SkippedRequirements = p.skippedRequirements
	if _, _, err := c.sources.For(key.Source); err != nil {
		fleet.Problem = err.Error()
	}
	for i := range results {
		results[i].expireRanking(now.Add(-maxSampleAge))
	}
	candidates := make([]gate.Candidate, len(g.Clusters))
	for i, cluster := range g.Clusters {
		candidates[i] = candidateOf(cluster, results, &f)
	}
	return candidates, fleet, nil
}

// cleanUp drops unused plans and results, expires the ledger entries whose pods every
// remaining result includes, and reports the failing queries.
func (c *Cache) cleanUp() {
	now := c.now()
	c.dropUnused(now)
	c.ledger.Expire(c.oldestSampleTimes(), now)
	c.mu.Lock()
	report := c.onFaults
	c.mu.Unlock()
	report(c.faults())
}
