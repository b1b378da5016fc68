package loop

import (
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// results has the results of a gate's queries, with the ages that those of package querycache have: queries take
// time, decisions use the last results for a period, and the wait queue asks for new ones.
type results struct {
	process     *process
	ledger      *ledger.Ledger
	onRefreshed func(key gatestate.QueryKey, newerThan time.Time)
	times       *timesResult
	shapes      map[string]*shapeResult
	plans       map[gatestate.QueryKey]*plan
}

// timesResult is the result of the two queries for sample times. It is never changed.
type timesResult struct {
	queriedAt, storedAt time.Time
	devices, quota      map[string]time.Time
}

// shapeResult is the result of the other queries for one shape of workloads.
type shapeResult struct {
	queriedAt, storedAt, usedAt time.Time
	times                       *timesResult
	byCluster                   map[string][]gate.ShapeMetrics
}

// plan is the state of the refreshes for a key.
type plan struct {
	gate  gatestate.Gate
	facts shape.Facts
	// shape identifies the queries of the facts: they do not depend on the namespace, the queue or the number of pods.
	shape                             string
	usedAt, refreshAfter, completedAt time.Time
	refreshing, again                 bool
}

func newPlan(g gatestate.Gate, f shape.Facts) *plan {
	same := f
	same.Namespace, same.Queue, same.PodSets = "", "", slices.Clone(f.PodSets)
	for i := range same.PodSets {
		same.PodSets[i].Pods, same.PodSets[i].MinPods = 0, 0
	}
	return &plan{gate: g, facts: f, shape: same.EquivalenceKey()}
}

// waiting lets the duration of queries pass before it goes on.
type waiting func(d time.Duration, then func())

func newResults(p *process, l *ledger.Ledger) *results {
	return &results{process: p, ledger: l, times: &timesResult{}, shapes: map[string]*shapeResult{}, plans: map[gatestate.QueryKey]*plan{}}
}

// sleep is the waiting of a decision.
func (r *results) sleep(d time.Duration, then func()) {
	r.process.driver.sleep(d)
	then()
}

// candidates are the gate's clusters with results for a workload. It queries what is too old to be used.
func (r *results) candidates(g gatestate.Gate, key gatestate.QueryKey, f shape.Facts) []gate.Candidate {
	now := r.process.now()
	p := r.plans[key]
	if p == nil {
		p = newPlan(g, f)
		r.plans[key] = p
	}
	p.gate, p.usedAt = g, now
	period := min(timing.Seconds(g.Spec.PeriodSeconds, timing.DefaultPeriod), timing.Seconds(g.Spec.Freshness.MaxSampleAgeSeconds, timing.DefaultMaxSampleAge)/2)
	if now.Sub(r.times.storedAt) >= period {
		r.queryTimes(p, r.sleep, func() {})
	}
	times, result := r.times, r.shapes[p.shape]
	if result == nil || now.Sub(result.storedAt) >= period {
		r.queryShape(p, r.sleep, func() {})
		result = r.shapes[p.shape]
	}
	result.usedAt = now
	isOld := now.Sub(times.storedAt) >= timing.FreshResult || now.Sub(result.storedAt) >= timing.FreshResult
	if isOld && now.Sub(p.completedAt) >= timing.FreshResult {
		r.refresh(key, now.Add(-timing.FreshResult))
	}
	return result.candidates(g, times)
}

// candidates puts results together. A time is that of the oldest sample behind them.
func (r *shapeResult) candidates(g gatestate.Gate, times *timesResult) []gate.Candidate {
	list := make([]gate.Candidate, len(g.Clusters))
	for i, c := range g.Clusters {
		list[i] = c.Candidate()
		list[i].Shapes, list[i].SampledAt, list[i].QuotaSampledAt = slices.Clone(r.byCluster[c.Name]), times.devices[c.Name], r.times.quota[c.Name]
		if at := r.times.devices[c.Name]; at.Before(list[i].SampledAt) {
			list[i].SampledAt = at
		}
	}
	return list
}

// queryTimes queries the sample times.
func (r *results) queryTimes(p *plan, wait waiting, then func()) {
	result := &timesResult{queriedAt: r.process.now(), devices: map[string]time.Time{}, quota: map[string]time.Time{}}
	for _, c := range r.process.driver.Candidates(p.gate, shape.Facts{Remote: true}) {
		result.devices[c.Name], result.quota[c.Name] = c.SampledAt, c.QuotaSampledAt
	}
	wait(r.duration(2), func() {
		result.storedAt = r.process.now()
		if !result.queriedAt.Before(r.times.queriedAt) {
			r.times = result
		}
		then()
	})
}

// queryShape queries room and quota for the shape of a plan.
func (r *results) queryShape(p *plan, wait waiting, then func()) {
	now := r.process.now()
	result := &shapeResult{queriedAt: now, usedAt: now, times: r.times, byCluster: map[string][]gate.ShapeMetrics{}}
	for _, c := range r.process.driver.Candidates(p.gate, p.facts) {
		result.byCluster[c.Name] = c.Shapes
	}
	wait(r.duration(6), func() {
		result.storedAt = r.process.now()
		if old := r.shapes[p.shape]; old == nil || !result.queriedAt.Before(old.queriedAt) {
			r.shapes[p.shape] = result
		}
		then()
	})
}

// duration is that of a number of concurrent queries.
func (r *results) duration(queries int) time.Duration {
	longest := time.Duration(0)
	for range queries {
		longest = max(longest, r.process.driver.QueryTime())
	}
	return longest
}

// refresh asks for results that are newer than a time, and does not wait.
func (r *results) refresh(key gatestate.QueryKey, newerThan time.Time) {
	p := r.plans[key]
	if p == nil {
		r.process.after(0, func() { r.onRefreshed(key, r.process.now()) })
		return
	}
	if p.refreshAfter.Before(newerThan) {
		p.refreshAfter = newerThan
	}
	if p.refreshing {
		p.again = true
		return
	}
	p.refreshing = true
	r.process.after(0, func() { r.run(key, p, p.refreshAfter) })
}

// run runs the queries of a refresh: those for times first.
func (r *results) run(key gatestate.QueryKey, p *plan, newerThan time.Time) {
	refreshed := func() {
		p.completedAt, p.refreshing = r.process.now(), false
		r.onRefreshed(key, newerThan)
		if p.again {
			p.again = false
			r.refresh(key, p.refreshAfter)
		}
	}
	queryShape := func() {
		if old := r.shapes[p.shape]; old != nil && !old.queriedAt.Before(newerThan) && !old.times.queriedAt.Before(newerThan) {
			refreshed()
			return
		}
		r.queryShape(p, r.process.after, refreshed)
	}
	if !r.times.queriedAt.Before(newerThan) {
		queryShape()
		return
	}
	r.queryTimes(p, r.process.after, queryShape)
}

// cleanUp forgets unused results, and the reservations that all others show.
func (r *results) cleanUp() {
	now := r.process.now()
	maps.DeleteFunc(r.plans, func(_ gatestate.QueryKey, p *plan) bool {
		return !p.refreshing && now.Sub(p.usedAt) > timing.UnusedResultTTL
	})
	maps.DeleteFunc(r.shapes, func(_ string, s *shapeResult) bool { return now.Sub(s.usedAt) > timing.UnusedResultTTL })
	oldest := map[string]ledger.SampleTimes{}
	for _, s := range r.shapes {
		for cluster, at := range s.times.devices {
			times := oldest[cluster]
			times.Devices, times.Quota = earliest(times.Devices, at), earliest(times.Quota, s.times.quota[cluster])
			oldest[cluster] = times
		}
	}
	r.ledger.Expire(oldest, now)
}

// earliest is the earlier time of those that are not zero.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// refreshHolders reports to the ledger how many pods of admitted workloads hold devices.
func (r *results) refreshHolders() {
	owners := r.ledger.AwaitedHolders()
	if len(owners) == 0 || len(r.plans) == 0 {
		return
	}
	queriedAt := r.process.now()
	holders := r.process.driver.Holders(owners)
	r.process.after(r.duration(1)+r.duration(1), func() { r.ledger.MarkHeld(holders, queriedAt) })
}
