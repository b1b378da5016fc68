package querycache

import (
	"fmt"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// shape of workloads that a gate asks the same questions about. Without facts it
// is that of workloads that no question was asked about.
type Key struct {
	Gate       string
	source     string
	Generation int64
	label      string
	Facts      string
}

// plan of what is asked about workloads of one shape.
type queryPlan struct {
	source, label string
	// keep it and its answers for so long after their last use.
	ttl time.Duration
	// questions, of which the first asks for the sample times.
	queries []renderedQuery
	usedAt  time.Time
	// newer than this must answers be that are renewed.
	refreshAfter time.Time
	// done is when all questions were answered last.
	completedAt time.Time
}

// asked is one question, rendered, with the pod set that it is about.
type renderedQuery struct {
	gate.Query
	podSet    int
	expr, key string
	// keep the answer for so long after its last use.
	ttl time.Duration
	// broken answers instead where the facts can't be rendered.
	renderError *cachedResult
}

// reply to a question.
type queryResult struct {
	*renderedQuery
	result *cachedResult
}

// shape of a workload under a gate.
func (a *Cache) KeyOf(g registry.Gate, f shape.Facts) Key {
	label := "cluster"
	if _, info, err := a.sources.For(g.Spec.SourceRef.Name); err == nil && info.ClusterLabel != "" {
		label = info.ClusterLabel
	}
	return Key{Gate: g.Name, source: g.Spec.SourceRef.Name, Generation: g.Generation, label: label, Facts: f.EquivalenceKey()}
}

// plan of a shape, made when it is first seen.
func (a *Cache) plan(s Key, g registry.Gate, f shape.Facts) *queryPlan {
	if p := a.knownPlan(s); p != nil {
		return p
	}
	p := newPlan(g, f, s.label)
	a.mu.Lock()
	defer a.mu.Unlock()
	p.usedAt = a.now()
	a.plans[s] = p
	return p
}

// done says when all questions of a plan were answered last.
func (a *Cache) lastCompleted(p *queryPlan) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return p.completedAt
}

func (a *Cache) knownPlan(s Key) *queryPlan {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.plans[s]
	if p != nil {
		p.usedAt = a.now()
	}
	return p
}

// newPlan lists and renders the questions about a workload: those per shape once
// for each pod set, conditions for the largest alone.
func newPlan(g registry.Gate, f shape.Facts, label string) *queryPlan {
	p := &queryPlan{source: g.Spec.SourceRef.Name, label: label}
	// What is trusted is not forgotten, nor is by Open for how long nobody answers.
	p.ttl = max(timing.UnusedResultTTL, timing.Seconds(g.Spec.Freshness.MaxSampleAgeSeconds, timing.DefaultMaxSampleAge))
	if g.Spec.Freshness.OnStale == v1alpha1.StaleOpen {
		p.ttl = max(p.ttl, timing.Seconds(g.Spec.Freshness.UnknownAfterSeconds, timing.DefaultUnknownAfter))
	}
	for _, q := range gate.Queries(&g.Spec, label) {
		switch {
		case q.Remote && !f.Remote:
		case q.Condition != nil || !q.PerShape:
			p.queries = append(p.queries, p.render(q, f, 0))
		default:
			for i := range f.PodSets {
				p.queries = append(p.queries, p.render(q, f, i))
			}
		}
	}
	return p
}

func (p *queryPlan) render(q gate.Query, f shape.Facts, set int) renderedQuery {
	r := renderedQuery{Query: q, podSet: set, ttl: p.ttl}
	var pods shape.PodSet
	if set < len(f.PodSets) {
		pods = f.PodSets[set]
	}
	template, problems := promql.ParseTemplate(q.Expr, shape.Variables)
	if len(problems) > 0 {
		r.renderError = &cachedResult{err: fmt.Errorf("%s", promql.Strings(problems))}
		return r
	}
	expr, err := template.Render(f.Vars(pods))
	if err != nil {
		r.renderError = &cachedResult{err: err}
		return r
	}
	r.expr, r.key = expr, p.source+"\x00"+expr
	if r.measuresRoom() {
		r.key += "\x00" + p.queries[0].expr
	}
	return r
}

// expire an answer from before then that nobody renewed. Those that decide tell their
// age, at which who decides looks; quota that is so old is as if nobody had told any,
// for it must not make the samples look old that the rest was asked with.
func (r *queryResult) expireRanking(then time.Time) {
	if h := r.result; h.err != nil && h.succeededAt.Before(then) && (r.Name == gate.QueryQuota || !r.decidesAdmission()) {
		r.result = &cachedResult{err: h.err}
	}
}

// decides who may go where, and tells its age. The other questions rank and explain.
func (q *renderedQuery) decidesAdmission() bool {
	return q.Condition != nil || q.Name == gate.QuerySampleTime || q.measuresRoom()
}

// aboutRoom: what the ledger is subtracted from, which is of no use without the
// sample times that were known when it was asked for.
func (q *renderedQuery) measuresRoom() bool {
	return q.Name == gate.QueryFit || q.Name == gate.QueryQuota
}
