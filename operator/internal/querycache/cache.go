package querycache

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// asker asks the gates' questions. Decisions take the answers that are held, which
// are renewed beside them, and wait only for those that nobody asked for of late.
// While a source does not answer, the last good answer is kept. How old that is
// shows in the sample times, which are answers too; a condition tells its age itself.
type Cache struct {
	sources *query.Sources
	Ledger  *ledger.Ledger
	client  client.Client
	now     func() time.Time
	// renewed is called when no answer about a shape is older than that any longer.
	OnRefreshed func(s Key, newer time.Time)
	// tell what nobody answers, by gate.
	ReportFailing func(map[string]string)

	flights singleflight.Group
	mu      sync.Mutex
	// queues of shapes to renew, by source: one that hangs holds up no other.
	queues map[string]workqueue.TypedInterface[Key]
	// serve a queue; nil before the start and after the end.
	startWorkers func(workqueue.TypedInterface[Key])
	results      map[string]*cachedResult
	plans        map[Key]*queryPlan
}

func New(sources *query.Sources, ledger *ledger.Ledger, c client.Client, now func() time.Time) *Cache {
	return &Cache{sources: sources, Ledger: ledger, client: c, now: now, OnRefreshed: func(Key, time.Time) {}, ReportFailing: func(map[string]string) {},
		queues: map[string]workqueue.TypedInterface[Key]{}, results: map[string]*cachedResult{}, plans: map[Key]*queryPlan{}}
}

// answers to the gate's questions about the workload, by cluster, and what is
// known of the fleet.
func (a *Cache) Results(ctx context.Context, g registry.Gate, f shape.Facts) (map[string]ClusterResult, gate.Fleet) {
	s, now, trust := a.KeyOf(g, f), a.now(), timing.Seconds(g.Spec.Freshness.MaxSampleAgeSeconds, timing.DefaultMaxSampleAge)
	// Where the period is long, what is held must not grow stale by serving.
	period := min(timing.Seconds(g.Spec.PeriodSeconds, timing.DefaultPeriod), trust/2)
	p := a.plan(s, g, f)
	replies := a.query(context.WithoutCancel(ctx), p, func(h *cachedResult) bool { return h.isServable(period, now) })
	old := func(r queryResult) bool {
		return r.renderError == nil && now.Sub(r.result.storedAt) >= timing.FreshResult
	}
	if slices.ContainsFunc(replies, old) && now.Sub(a.lastCompleted(p)) >= timing.FreshResult {
		a.Refresh(s, now.Add(-timing.FreshResult))
	}
	var fleet gate.Fleet
	if _, _, err := a.sources.For(g.Spec.SourceRef.Name); err != nil {
		fleet.Problem = err.Error()
	}
	fleetStateOf(replies, &fleet)
	for i := range replies {
		replies[i].expireRanking(now.Add(-trust))
	}
	answers := make(map[string]ClusterResult, len(g.Clusters))
	for _, c := range g.Clusters {
		answers[c.Name] = clusterResultOf(c.Name, replies, len(f.PodSets))
	}
	return answers, fleet
}

// ask what no held answer serves. The sample times come first: they must never be
// newer than what they are to vouch for, or the ledger would leave out what that
// does not show yet. Without them nothing else is asked.
func (a *Cache) query(ctx context.Context, p *queryPlan, serves func(*cachedResult) bool) []queryResult {
	r := queryRound{Cache: a, plan: p, isServable: serves}
	replies := r.queryAll(ctx, p.queries[:1])
	r.sampleTimes = replies[0].result
	return append(replies, r.queryAll(ctx, p.queries[1:])...)
}

// round of questions about one shape.
type queryRound struct {
	*Cache
	plan       *queryPlan
	isServable func(*cachedResult) bool
	// times are the answer to the first question; nil while that is asked.
	sampleTimes *cachedResult
}

func (r *queryRound) queryAll(ctx context.Context, questions []renderedQuery) []queryResult {
	replies := r.lookUp(questions, r.isServable)
	absent := func(q queryResult) bool { return q.result == nil }
	if !slices.ContainsFunc(replies, absent) {
		return replies
	}
	t := r.queryTarget(ctx)
	var group errgroup.Group
	group.SetLimit(6)
	for i := range replies {
		if absent(replies[i]) {
			group.Go(func() error {
				replies[i].result = r.queryOne(ctx, t, replies[i].renderedQuery)
				return nil
			})
		}
	}
	_ = group.Wait()
	return replies
}

// one question, asked by one at a time. What another asked before an answer would
// serve us is asked once more.
func (r *queryRound) queryOne(ctx context.Context, t querySource, q *renderedQuery) *cachedResult {
	fly := func() *cachedResult {
		got, _, _ := r.flights.Do(q.key, func() (any, error) { return r.store(q, r.runQuery(ctx, t, q)), nil })
		return got.(*cachedResult)
	}
	h := fly()
	if !r.isServable(h) {
		h = fly()
	}
	return h
}

func (r *queryRound) runQuery(ctx context.Context, t querySource, q *renderedQuery) *cachedResult {
	if r.sampleTimes != nil && r.sampleTimes.err != nil {
		return &cachedResult{queriedAt: r.sampleTimes.queriedAt, failingSince: r.sampleTimes.failingSince, err: r.sampleTimes.err}
	}
	h := &cachedResult{queriedAt: r.now()}
	if q.measuresRoom() {
		h.sampleTimes = r.sampleTimes
	}
	if h.err = t.fetch(ctx, q.expr, h); h.err == nil {
		h.succeededAt = h.queriedAt
	}
	return h
}

// target of questions, or why it can't be asked.
type querySource struct {
	querier query.Querier
	label   string
	aliases map[string]string
	err     error
}

func (r *queryRound) queryTarget(ctx context.Context) querySource {
	querier, info, err := r.sources.For(r.plan.source)
	if err != nil {
		return querySource{err: err}
	}
	aliases, err := r.clusterAliases(ctx, info)
	return querySource{querier: querier, label: r.plan.label, aliases: aliases, err: err}
}

func (t *querySource) fetch(ctx context.Context, expr string, h *cachedResult) error {
	if t.err != nil {
		return t.err
	}
	ctx, cancel := context.WithTimeout(ctx, timing.QueryTimeout)
	defer cancel()
	got, err := t.querier.Query(ctx, expr, h.queriedAt)
	if err != nil {
		return err
	}
	h.values, h.partial = map[string]gate.Number{}, got.Partial || len(got.Failed) > 0
	if !got.Partial {
		h.failedClusters = got.Failed
	}
	for _, sample := range got.Samples {
		name, named := sample.Labels[t.label]
		if t.aliases != nil {
			name, named = t.aliases[name]
		}
		if !named {
			h.unlabeled = append(h.unlabeled, sample.Value)
			continue
		}
		_, twice := h.values[name]
		bad := twice || math.IsNaN(sample.Value) || math.IsInf(sample.Value, 0)
		h.values[name] = gate.Number{Value: sample.Value, Known: !bad}
	}
	return nil
}

// fleetOf the replies. What only tells what is missing is nobody's problem but the gate's.
func fleetStateOf(replies []queryResult, fleet *gate.Fleet) {
	for _, q := range replies {
		if q.Name == gate.QueryLargest {
			continue
		}
		if q.result.err != nil && fleet.Problem == "" {
			fleet.Problem = fmt.Sprintf("%s: %v", q.Name, q.result.err)
		}
		if q.decidesAdmission() && q.result.failingSince.After(fleet.FailingSince) {
			fleet.FailingSince = q.result.failingSince
		}
		fleet.Incomplete = fleet.Incomplete || q.result.isIncomplete() || q.Name == gate.QueryFit && q.result.hasInvalidValue()
		if q.isFleetScoped() {
			fleet.Conditions = append(fleet.Conditions, q.result.fleetCondition(q.Condition.Name))
		}
	}
}
