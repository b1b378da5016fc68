package workload

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
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// asker asks the gates' questions. Decisions take the answers that are held, which
// are renewed beside them, and wait only for those that nobody asked for of late.
// While a source does not answer, the last good answer is kept. How old that is
// shows in the sample times, which are answers too; a condition tells its age itself.
type asker struct {
	sources *query.Sources
	ledger  *gate.Ledger
	client  client.Client
	now     func() time.Time
	// renewed is called when no answer about a shape is older than that any longer.
	renewed func(s shape, newer time.Time)
	// tell what nobody answers, by gate.
	tell func(map[string]string)

	flight singleflight.Group
	mu     sync.Mutex
	// queues of shapes to renew, by source: one that hangs holds up no other.
	queues map[string]workqueue.TypedInterface[shape]
	// serve a queue; nil before the start and after the end.
	serve func(workqueue.TypedInterface[shape])
	held  map[string]*held
	plans map[shape]*plan
}

func newAsker(sources *query.Sources, ledger *gate.Ledger, c client.Client, now func() time.Time) *asker {
	return &asker{sources: sources, ledger: ledger, client: c, now: now, renewed: func(shape, time.Time) {}, tell: func(map[string]string) {},
		queues: map[string]workqueue.TypedInterface[shape]{}, held: map[string]*held{}, plans: map[shape]*plan{}}
}

// answers to the gate's questions about the workload, by cluster, and what is
// known of the fleet.
func (a *asker) answers(ctx context.Context, g gate.Gate, f gate.Facts) (map[string]answer, gate.Fleet) {
	s, now, trust := a.shape(g, f), a.now(), gate.Seconds(g.Spec.Freshness.MaxSampleAgeSeconds, gate.DefaultMaxSampleAge)
	// Where the period is long, what is held must not grow stale by serving.
	period := min(gate.Seconds(g.Spec.PeriodSeconds, gate.DefaultPeriod), trust/2)
	p := a.plan(s, g, f)
	replies := a.ask(context.WithoutCancel(ctx), p, func(h *held) bool { return h.serves(period, now) })
	old := func(r reply) bool { return r.broken == nil && now.Sub(r.held.answered) >= freshFor }
	if slices.ContainsFunc(replies, old) && now.Sub(a.done(p)) >= freshFor {
		a.renew(s, now.Add(-freshFor))
	}
	var fleet gate.Fleet
	if _, _, err := a.sources.For(g.Spec.SourceRef.Name); err != nil {
		fleet.Problem = err.Error()
	}
	fleetOf(replies, &fleet)
	for i := range replies {
		replies[i].expire(now.Add(-trust))
	}
	answers := make(map[string]answer, len(g.Clusters))
	for _, c := range g.Clusters {
		answers[c.Name] = answerOf(c.Name, replies, len(f.PodSets))
	}
	return answers, fleet
}

// ask what no held answer serves. The sample times come first: they must never be
// newer than what they are to vouch for, or the ledger would leave out what that
// does not show yet. Without them nothing else is asked.
func (a *asker) ask(ctx context.Context, p *plan, serves func(*held) bool) []reply {
	r := round{asker: a, plan: p, serves: serves}
	replies := r.all(ctx, p.questions[:1])
	r.times = replies[0].held
	return append(replies, r.all(ctx, p.questions[1:])...)
}

// round of questions about one shape.
type round struct {
	*asker
	plan   *plan
	serves func(*held) bool
	// times are the answer to the first question; nil while that is asked.
	times *held
}

func (r *round) all(ctx context.Context, questions []asked) []reply {
	replies := r.look(questions, r.serves)
	absent := func(q reply) bool { return q.held == nil }
	if !slices.ContainsFunc(replies, absent) {
		return replies
	}
	t := r.target(ctx)
	var group errgroup.Group
	group.SetLimit(6)
	for i := range replies {
		if absent(replies[i]) {
			group.Go(func() error {
				replies[i].held = r.one(ctx, t, replies[i].asked)
				return nil
			})
		}
	}
	_ = group.Wait()
	return replies
}

// one question, asked by one at a time. What another asked before an answer would
// serve us is asked once more.
func (r *round) one(ctx context.Context, t target, q *asked) *held {
	fly := func() *held {
		got, _, _ := r.flight.Do(q.key, func() (any, error) { return r.put(q, r.query(ctx, t, q)), nil })
		return got.(*held)
	}
	h := fly()
	if !r.serves(h) {
		h = fly()
	}
	return h
}

func (r *round) query(ctx context.Context, t target, q *asked) *held {
	if r.times != nil && r.times.err != nil {
		return &held{asked: r.times.asked, since: r.times.since, err: r.times.err}
	}
	h := &held{asked: r.now()}
	if q.aboutRoom() {
		h.with = r.times
	}
	if h.err = t.query(ctx, q.expr, h); h.err == nil {
		h.good = h.asked
	}
	return h
}

// target of questions, or why it can't be asked.
type target struct {
	querier query.Querier
	label   string
	aliases map[string]string
	err     error
}

func (r *round) target(ctx context.Context) target {
	querier, info, err := r.sources.For(r.plan.source)
	if err != nil {
		return target{err: err}
	}
	aliases, err := r.aliases(ctx, info)
	return target{querier: querier, label: r.plan.label, aliases: aliases, err: err}
}

func (t *target) query(ctx context.Context, expr string, h *held) error {
	if t.err != nil {
		return t.err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := t.querier.Query(ctx, expr, h.asked)
	if err != nil {
		return err
	}
	h.values, h.partial = map[string]gate.Number{}, got.Partial || len(got.Failed) > 0
	if !got.Partial {
		h.lacking = got.Failed
	}
	for _, sample := range got.Samples {
		name, named := sample.Labels[t.label]
		if t.aliases != nil {
			name, named = t.aliases[name]
		}
		if !named {
			h.bare = append(h.bare, sample.Value)
			continue
		}
		_, twice := h.values[name]
		bad := twice || math.IsNaN(sample.Value) || math.IsInf(sample.Value, 0)
		h.values[name] = gate.Number{Value: sample.Value, Known: !bad}
	}
	return nil
}

// fleetOf the replies. What only tells what is missing is nobody's problem but the gate's.
func fleetOf(replies []reply, fleet *gate.Fleet) {
	for _, q := range replies {
		if q.Name == gate.AskLargest {
			continue
		}
		if q.held.err != nil && fleet.Problem == "" {
			fleet.Problem = fmt.Sprintf("%s: %v", q.Name, q.held.err)
		}
		if q.decides() && q.held.since.After(fleet.Since) {
			fleet.Since = q.held.since
		}
		fleet.Doubtful = fleet.Doubtful || q.held.doubtful() || q.Name == gate.AskFit && q.held.odd()
		if q.ofFleet() {
			fleet.Conditions = append(fleet.Conditions, q.held.ofFleet(q.Condition.Name))
		}
	}
}
