package score

import (
	"cmp"
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/normalize"
)

// Policy is a ScoringPolicy's spec with defaults applied and quantities read.
type Policy struct {
	Names      []string // of the scores; the total is last
	HasTotal   bool
	MinHealthy int
	MaxAge     time.Duration // 0: age is not judged

	scores   []rule
	total    normalize.Range
	deadband float64 // of the total
	weights  float64 // their sum
}

type rule struct {
	weight    float64
	minimum   float64 // -Inf: no veto
	bounds    normalize.Range
	normalize func(float64) float64 // nil when fleet is set
	fleet     *v1alpha1.Fleet
	hold      time.Duration
	then      v1alpha1.MissingOutcome
	fixed     int32
	halfLife  time.Duration
	deadband  float64
	rise      time.Duration
}

// Compile reads a policy's spec. Fields that the API server has not defaulted get
// their defaults here, so that files can be evaluated without one.
func Compile(spec *v1alpha1.ScoringPolicySpec) *Policy {
	p := &Policy{MinHealthy: int(deref(spec.MinHealthyPercent, 50))}
	if f := spec.Freshness; f != nil {
		p.MaxAge = seconds(cmp.Or(f.MaxAgeSeconds, 120))
	}
	for i := range spec.Scores {
		s := &spec.Scores[i]
		r := compile(s)
		p.Names = append(p.Names, s.Name)
		p.scores = append(p.scores, r)
		p.weights += r.weight
		if r.weight > 0 {
			p.deadband = max(p.deadband, r.deadband)
		}
	}
	if t := spec.Total; t != nil {
		p.HasTotal, p.total = true, bounds(t.Range)
		p.Names = append(p.Names, cmp.Or(t.Name, "total"))
	}
	return p
}

func compile(s *v1alpha1.ScoreSpec) rule {
	r := rule{
		weight:   float64(deref(s.Weight, 1)),
		minimum:  math.Inf(-1),
		bounds:   bounds(s.Range),
		hold:     seconds(deref(s.Missing.HoldSeconds, 300)),
		then:     cmp.Or(s.Missing.Then, v1alpha1.MissingWorst),
		fixed:    deref(s.Missing.FixedValue, Lowest),
		halfLife: seconds(s.Damping.HalfLifeSeconds),
		deadband: float64(s.Damping.Deadband),
		rise:     seconds(s.Damping.RiseSeconds),
	}
	if s.Minimum != nil {
		r.minimum = float64(*s.Minimum)
	}
	switch n := s.Normalize; {
	case n.Type == v1alpha1.NormalizeLinear && n.Linear != nil:
		from, to := n.Linear.From.AsApproximateFloat64(), n.Linear.To.AsApproximateFloat64()
		r.normalize = func(v float64) float64 { return normalize.Linear(v, from, to, r.bounds) }
	case n.Type == v1alpha1.NormalizeSteps:
		steps := make([]normalize.Step, len(n.Steps))
		for i, st := range n.Steps {
			steps[i] = normalize.Step{From: st.From.AsApproximateFloat64(), Points: float64(st.Points)}
		}
		slices.SortStableFunc(steps, func(a, b normalize.Step) int { return cmp.Compare(a.From, b.From) })
		r.normalize = func(v float64) float64 { return normalize.Steps(v, steps, r.bounds) }
	case n.Type == v1alpha1.NormalizeFleet && n.Fleet != nil:
		r.fleet = n.Fleet
	default:
		r.normalize = func(v float64) float64 { return v }
	}
	return r
}

func bounds(r v1alpha1.ScoreRange) normalize.Range {
	if r == v1alpha1.RangeFull {
		return normalize.Full
	}
	return normalize.ZeroTo100
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func deref(p *int32, fallback int32) int32 {
	if p == nil {
		return fallback
	}
	return *p
}
