package round

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// Request is what a round needs.
type Request struct {
	Spec     *v1alpha1.ScoringPolicySpec
	Policy   *score.Policy // compiled from Spec
	Querier  query.Querier
	Info     query.SourceInfo
	Clusters []Cluster // sorted by name, as Fleet returns them
	Previous *score.Result
	Now      time.Time // the evaluation time of every query
	// Contributions of former rounds; nil where answers are never partial.
	Contributions *Contributions
}

// Asked is one expression of a policy and what came of it.
type Asked struct {
	Name     string // of the score, empty for freshness
	Query    string
	Duration time.Duration
	Series   int
	Warnings []string
	Infos    []string
	Problems []promql.Problem // it does not parse; it was not asked
	Err      error            // it got no answer
}

// Report of a round.
type Report struct {
	Result    *score.Result
	Scores    []Asked // as in the spec
	Freshness *Asked  // nil when the policy has none
	Sent      int     // questions that were asked: distinct expressions
}

// Run asks, maps, judges freshness and evaluates. It does not fail: what went wrong
// stands in the report, and the clusters that it concerns are held.
func Run(ctx context.Context, req Request) *Report {
	index := NewIndex(req.Clusters)
	answers := ask(query.ForClusters(ctx, index.Names()), req)
	report := &Report{Sent: answers.sent()}
	in := score.Samples{Clusters: index.Names()}
	for i := range req.Spec.Scores {
		s := &req.Spec.Scores[i]
		asked, inputs := answers.read(s.Query, req.Info.ClusterLabel, index)
		asked.Name = s.Name
		report.Scores = append(report.Scores, asked)
		in.Scores = append(in.Scores, inputs)
	}
	if f := req.Spec.Freshness; f != nil {
		asked, ages := answers.read(f.Query, req.Info.ClusterLabel, index)
		report.Freshness = &asked
		in.Age = judgeAge(ages, in.Scores, req.Policy.MaxAge)
	}
	report.Result = score.Evaluate(req.Policy, in, req.Previous, req.Now)
	return report
}

// judgeAge returns each cluster's age and takes the values of those too old, or of
// an age that nobody knows, out of every score.
func judgeAge(ages []score.Input, scores [][]score.Input, limit time.Duration) []time.Duration {
	out := make([]time.Duration, len(ages))
	for c, age := range ages {
		outcome := age.Outcome
		switch outcome {
		case score.OK:
			out[c] = time.Duration(max(age.Value, 0) * float64(time.Second))
			if age.Value > limit.Seconds() {
				outcome = score.Stale
			}
		case score.Failed, score.Invalid:
		default:
			outcome = score.Stale
		}
		if outcome == score.OK {
			continue
		}
		for s := range scores {
			if scores[s][c].Outcome == score.OK {
				scores[s][c] = score.Input{Outcome: outcome}
			}
		}
	}
	return out
}

type reply struct {
	problems []promql.Problem
	answer   query.Result
	err      error
}

type replies map[string]*reply

// ask sends each distinct expression that parses, all at the same evaluation time.
func ask(ctx context.Context, req Request) replies {
	all := replies{}
	var group sync.WaitGroup
	for _, expr := range expressions(req.Spec) {
		if all[expr] != nil {
			continue
		}
		r := &reply{problems: promql.Check(expr)}
		all[expr] = r
		if r.problems != nil {
			continue
		}
		group.Go(func() { r.answer, r.err = req.Contributions.ask(ctx, req, expr) })
	}
	group.Wait()
	return all
}

func expressions(spec *v1alpha1.ScoringPolicySpec) []string {
	var exprs []string
	for i := range spec.Scores {
		exprs = append(exprs, spec.Scores[i].Query)
	}
	if spec.Freshness != nil {
		exprs = append(exprs, spec.Freshness.Query)
	}
	return exprs
}

func (a replies) sent() int {
	n := 0
	for _, r := range a {
		if r.problems == nil {
			n++
		}
	}
	return n
}

func (a replies) read(expr, label string, x *Index) (Asked, []score.Input) {
	r := a[expr]
	asked := Asked{
		Query: expr, Duration: r.answer.Duration, Series: len(r.answer.Samples), Problems: r.problems, Err: r.err,
		Warnings: r.answer.Warnings, Infos: r.answer.Infos,
	}
	switch {
	case r.problems != nil:
		return asked, fill(len(x.names), score.Invalid)
	case r.err != nil:
		return asked, fill(len(x.names), score.Failed)
	}
	m := Map(r.answer, label, x)
	if p := m.Problem(label); p != "" {
		asked.Warnings = append([]string{p}, asked.Warnings...)
	}
	if n := len(r.answer.Failed); n > 0 {
		first := slices.Min(slices.Collect(maps.Keys(r.answer.Failed)))
		asked.Warnings = append(asked.Warnings, fmt.Sprintf("%d clusters' endpoints did not answer; %s: %s", n, first, r.answer.Failed[first]))
	}
	return asked, m.Inputs
}
