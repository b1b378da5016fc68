package workload

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

const (
	// freshFor is how long an answer, once there, serves every workload of its shape.
	freshFor = time.Second
	// forgetAfter is how long an unused answer is kept.
	forgetAfter = 10 * time.Minute
	// askTimeout of one question; the source may state less.
	askTimeout = 20 * time.Second
)

// asker asks the gates' questions, each distinct one once per round, and keeps
// the last good answer while a source does not answer. How old that is shows in
// the sample times, which are answers too.
type asker struct {
	sources *query.Sources
	ledger  *gate.Ledger
	client  client.Client
	now     func() time.Time

	flight singleflight.Group
	mu     sync.Mutex
	held   map[string]*held
	since  map[string]time.Time
}

// held answer to one question.
type held struct {
	asked, answered, used time.Time
	// values by cluster; bare are those of series that name none.
	values  map[string]gate.Number
	bare    []float64
	partial bool
	err     error
}

// answer of one cluster to a gate's questions about one workload.
type answer struct {
	sampled    time.Time
	shapes     []gate.ShapeAnswer
	conditions []gate.Condition
}

func newAsker(sources *query.Sources, ledger *gate.Ledger, c client.Client, now func() time.Time) *asker {
	return &asker{sources: sources, ledger: ledger, client: c, now: now, held: map[string]*held{}, since: map[string]time.Time{}}
}

// refresh makes the gate's next round ask anew.
func (a *asker) refresh(gateName string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since[gateName] = a.now()
	for key, h := range a.held {
		if a.now().Sub(h.used) > forgetAfter {
			delete(a.held, key)
		}
	}
}

// asked is one question with the pod set that it is about.
type asked struct {
	gate.Question
	shape int
	held  *held
}

// answers to the gate's questions about the workload, by cluster, and what is
// known of the fleet.
func (a *asker) answers(ctx context.Context, g gate.Gate, f gate.Facts) (map[string]answer, gate.Fleet) {
	var fleet gate.Fleet
	querier, info, err := a.sources.For(g.Spec.SourceRef.Name)
	if err != nil {
		fleet.Problem = err.Error()
		querier = nil
	}
	label := info.ClusterLabel
	if label == "" {
		label = "cluster"
	}
	aliases, err := a.aliases(ctx, info)
	if err != nil {
		fleet.Problem = err.Error()
	}
	ask := round{asker: a, gate: g, facts: f, querier: querier, label: label, aliases: aliases}
	all := ask.all(ctx, list(&g.Spec, label, f))
	if extra := missing(all, f, label); len(extra) > 0 {
		all = append(all, ask.all(ctx, extra)...)
	}
	for _, q := range all {
		if q.held.err != nil && fleet.Problem == "" {
			fleet.Problem = fmt.Sprintf("%s: %v", q.Name, q.held.err)
		}
		fleet.Doubtful = fleet.Doubtful || q.held.doubtful() || q.Name == gate.AskFit && q.held.odd()
		if q.Condition != nil && q.Condition.Scope == v1alpha1.ScopeFleet && !holds(q.held) {
			fleet.Unmet = append(fleet.Unmet, q.Condition.Name)
		}
	}
	answers := map[string]answer{}
	sampled := map[string]time.Time{}
	for _, c := range g.Clusters {
		answers[c.Name] = answerOf(c.Name, all, f)
		sampled[c.Name] = answers[c.Name].sampled
	}
	a.ledger.Expire(sampled, a.now())
	return answers, fleet
}

// list the questions about a workload: those per shape once for each pod set,
// conditions for the largest alone.
func list(spec *v1alpha1.PlacementGateSpec, label string, f gate.Facts) []asked {
	var all []asked
	for _, q := range gate.Questions(spec, label) {
		switch {
		case q.Remote && !f.Remote:
		case q.Condition != nil || !q.PerShape:
			all = append(all, asked{Question: q})
		default:
			for i := range f.PodSets {
				all = append(all, asked{Question: q, shape: i})
			}
		}
	}
	return all
}

// missing asks for the best node of each cluster where no cluster has room; of
// no use where nobody knows the room.
func missing(all []asked, f gate.Facts, label string) []asked {
	var extra []asked
	for _, q := range all {
		if q.Name != gate.AskFit || q.held.err != nil {
			continue
		}
		room := false
		for _, n := range q.held.values {
			room = room || n.Known && n.Value >= float64(f.PodSets[q.shape].Pods)
		}
		if !room {
			extra = append(extra, asked{Question: gate.Largest(label), shape: q.shape})
		}
	}
	return extra
}

func answerOf(cluster string, all []asked, f gate.Facts) answer {
	a := answer{shapes: make([]gate.ShapeAnswer, len(f.PodSets))}
	unsure, kueue := false, false
	for _, q := range all {
		n, there := q.held.values[cluster]
		kueue = kueue || q.Name == gate.AskKueue && there && !q.held.doubtful()
		unsure = unsure || q.Name == gate.AskFit && !n.Known && (q.held.partial || q.held.values == nil)
	}
	for _, q := range all {
		a.take(q, cluster, kueue)
	}
	if unsure {
		a.sampled = time.Time{}
	}
	return a
}

// take the answer to one question; kueue: the cluster's Kueue tells its quotas.
func (a *answer) take(q asked, cluster string, kueue bool) {
	n, there := q.held.values[cluster]
	switch q.Name {
	case gate.AskSampleTime:
		if n.Known {
			a.sampled = time.UnixMilli(int64(n.Value * 1000))
		}
	case gate.AskFit:
		a.shapes[q.shape].Fit = n
	case gate.AskLargest:
		a.shapes[q.shape].Largest = n
	case gate.AskHeadroom:
		a.shapes[q.shape].Headroom = n
	case gate.AskCapacity:
		a.shapes[q.shape].Capacity = n
	case gate.AskQueued:
		a.shapes[q.shape].Queued = n
	case gate.AskQuota:
		a.shapes[q.shape].Quota = n
		a.shapes[q.shape].NoQuota = kueue && !there && !q.held.doubtful()
	case gate.AskKueue:
	default:
		if q.Condition.Scope != v1alpha1.ScopeFleet {
			a.conditions = append(a.conditions, gate.Condition{Name: q.Condition.Name, Number: n})
		}
	}
}

// doubtful: the answer may be incomplete or out of date, so that absence says nothing.
func (h *held) doubtful() bool { return h.err != nil || h.partial }

// odd: a cluster answered twice, or not with a number.
func (h *held) odd() bool {
	for _, n := range h.values {
		if !n.Known {
			return true
		}
	}
	return false
}

// holds says whether a fleet condition's answer is non-empty and non-zero.
func holds(h *held) bool {
	for _, v := range h.bare {
		if v != 0 && !math.IsNaN(v) {
			return true
		}
	}
	for _, n := range h.values {
		if n.Known && n.Value != 0 {
			return true
		}
	}
	return false
}

// round of questions of one gate about one workload.
type round struct {
	*asker
	gate    gate.Gate
	facts   gate.Facts
	querier query.Querier
	label   string
	aliases map[string]string
}

func (r round) all(ctx context.Context, questions []asked) []asked {
	var group errgroup.Group
	group.SetLimit(6)
	for i := range questions {
		group.Go(func() error {
			questions[i].held = r.one(ctx, questions[i])
			return nil
		})
	}
	_ = group.Wait()
	return questions
}

// one question: rendered, looked up, asked if there is no answer of this round.
func (r round) one(ctx context.Context, q asked) *held {
	var p gate.PodSet
	if q.shape < len(r.facts.PodSets) {
		p = r.facts.PodSets[q.shape]
	}
	template, problems := promql.ParseTemplate(q.Expr, gate.Variables)
	if len(problems) > 0 {
		return &held{err: fmt.Errorf("%s", promql.Strings(problems))}
	}
	expr, err := template.Render(r.facts.Vars(p))
	if err != nil {
		return &held{err: err}
	}
	key := r.gate.Spec.SourceRef.Name + "\x00" + expr
	if h, ok := r.cached(key); ok {
		return h
	}
	h, _, _ := r.flight.Do(key, func() (any, error) {
		if h, ok := r.cached(key); ok {
			return h, nil
		}
		return r.put(key, r.query(context.WithoutCancel(ctx), expr)), nil
	})
	return h.(*held)
}

func (r round) cached(key string) (*held, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.held[key]
	if !ok {
		return nil, false
	}
	now := r.now()
	h.used = now
	return h, now.Sub(h.answered) < freshFor && !h.asked.Before(r.since[r.gate.Name])
}

// put an answer, or the failure beside the last good one.
func (r round) put(key string, h *held) *held {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.held[key]; ok && h.err != nil {
		h.values, h.bare, h.partial = old.values, old.bare, old.partial
	}
	h.answered = r.now()
	h.used = h.answered
	r.held[key] = h
	return h
}

func (r round) query(ctx context.Context, expr string) *held {
	h := &held{asked: r.now()}
	if r.querier == nil {
		_, _, h.err = r.sources.For(r.gate.Spec.SourceRef.Name)
		return h
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := r.querier.Query(ctx, expr, h.asked)
	if err != nil {
		h.err = err
		return h
	}
	h.values, h.partial = map[string]gate.Number{}, got.Partial || len(got.Failed) > 0
	for _, s := range got.Samples {
		name, named := s.Labels[r.label]
		if !named {
			h.bare = append(h.bare, s.Value)
			continue
		}
		if r.aliases != nil {
			name = r.aliases[name]
		}
		_, twice := h.values[name]
		bad := twice || math.IsNaN(s.Value) || math.IsInf(s.Value, 0)
		h.values[name] = gate.Number{Value: s.Value, Known: !bad}
	}
	return h
}
