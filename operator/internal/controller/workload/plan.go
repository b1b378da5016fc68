package workload

import (
	"fmt"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/promql"
)

// shape of workloads that a gate asks the same questions about. Without facts it
// is that of workloads that no question was asked about.
type shape struct {
	gate       string
	source     string
	generation int64
	label      string
	facts      string
}

// plan of what is asked about workloads of one shape.
type plan struct {
	source, label string
	// keep it and its answers for so long after their last use.
	keep time.Duration
	// questions, of which the first asks for the sample times.
	questions []asked
	used      time.Time
	// newer than this must answers be that are renewed.
	newer time.Time
	// done is when all questions were answered last.
	done time.Time
}

// asked is one question, rendered, with the pod set that it is about.
type asked struct {
	gate.Question
	set       int
	expr, key string
	// keep the answer for so long after its last use.
	keep time.Duration
	// broken answers instead where the facts can't be rendered.
	broken *held
}

// reply to a question.
type reply struct {
	*asked
	held *held
}

// shape of a workload under a gate.
func (a *asker) shape(g gate.Gate, f gate.Facts) shape {
	label := "cluster"
	if _, info, err := a.sources.For(g.Spec.SourceRef.Name); err == nil && info.ClusterLabel != "" {
		label = info.ClusterLabel
	}
	return shape{gate: g.Name, source: g.Spec.SourceRef.Name, generation: g.Generation, label: label, facts: f.ShapeKey()}
}

// plan of a shape, made when it is first seen.
func (a *asker) plan(s shape, g gate.Gate, f gate.Facts) *plan {
	if p := a.known(s); p != nil {
		return p
	}
	p := newPlan(g, f, s.label)
	a.mu.Lock()
	defer a.mu.Unlock()
	p.used = a.now()
	a.plans[s] = p
	return p
}

// done says when all questions of a plan were answered last.
func (a *asker) done(p *plan) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return p.done
}

func (a *asker) known(s shape) *plan {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.plans[s]
	if p != nil {
		p.used = a.now()
	}
	return p
}

// newPlan lists and renders the questions about a workload: those per shape once
// for each pod set, conditions for the largest alone.
func newPlan(g gate.Gate, f gate.Facts, label string) *plan {
	p := &plan{source: g.Spec.SourceRef.Name, label: label}
	// What is trusted is not forgotten, nor is by Open for how long nobody answers.
	p.keep = max(forgetAfter, gate.Seconds(g.Spec.Freshness.MaxSampleAgeSeconds, gate.DefaultMaxSampleAge))
	if g.Spec.Freshness.OnStale == v1alpha1.StaleOpen {
		p.keep = max(p.keep, gate.Seconds(g.Spec.Freshness.UnknownAfterSeconds, gate.DefaultUnknownAfter))
	}
	for _, q := range gate.Questions(&g.Spec, label) {
		switch {
		case q.Remote && !f.Remote:
		case q.Condition != nil || !q.PerShape:
			p.questions = append(p.questions, p.render(q, f, 0))
		default:
			for i := range f.PodSets {
				p.questions = append(p.questions, p.render(q, f, i))
			}
		}
	}
	return p
}

func (p *plan) render(q gate.Question, f gate.Facts, set int) asked {
	r := asked{Question: q, set: set, keep: p.keep}
	var pods gate.PodSet
	if set < len(f.PodSets) {
		pods = f.PodSets[set]
	}
	template, problems := promql.ParseTemplate(q.Expr, gate.Variables)
	if len(problems) > 0 {
		r.broken = &held{err: fmt.Errorf("%s", promql.Strings(problems))}
		return r
	}
	expr, err := template.Render(f.Vars(pods))
	if err != nil {
		r.broken = &held{err: err}
		return r
	}
	r.expr, r.key = expr, p.source+"\x00"+expr
	if r.aboutRoom() {
		r.key += "\x00" + p.questions[0].expr
	}
	return r
}

// expire an answer from before then that nobody renewed. Those that decide tell their
// age, at which who decides looks; quota that is so old is as if nobody had told any,
// for it must not make the samples look old that the rest was asked with.
func (r *reply) expire(then time.Time) {
	if h := r.held; h.err != nil && h.good.Before(then) && (r.Name == gate.AskQuota || !r.decides()) {
		r.held = &held{err: h.err}
	}
}

// decides who may go where, and tells its age. The other questions rank and explain.
func (q *asked) decides() bool {
	return q.Condition != nil || q.Name == gate.AskSampleTime || q.aboutRoom()
}

// aboutRoom: what the ledger is subtracted from, which is of no use without the
// sample times that were known when it was asked for.
func (q *asked) aboutRoom() bool { return q.Name == gate.AskFit || q.Name == gate.AskQuota }
