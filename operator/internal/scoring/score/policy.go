package score

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Policy is a compiled ScoringPolicySpec: defaults are applied and quantities parsed.
type Policy struct {
	// Names of the scores. The total, if there is one, is last.
	Names      []string
	HasTotal   bool
	MinHealthy int
	// MaxAge of samples. It is 0 if the policy has no freshness query.
	MaxAge time.Duration
	// Aged are the scores of the spec to which the default freshness query applies. It is nil if the
	// policy has a query of its own, which applies to all scores, or none.
	Aged []bool

	queries     []string // of the scores
	dynamic     []bool   // scores with nameFrom, before Expand
	freshness   string   // query; empty without one
	scores      []rule
	totalRange  pointRange
	deadband    float64          // of the total
	totalWeight float64          // sum of the weights
	expression  *totalExpression // instead of the weighted mean, or nil
}

// rule is one compiled score of a policy.
type rule struct {
	weight float64
	// Bounds of the raw value, beyond which the cluster is vetoed; infinite = none.
	minimum, maximum float64
	bounds           pointRange
	normalize        func(float64) float64 // nil if fleet is set
	fleet            *v1alpha1.Fleet
	keepLast         time.Duration
	then             v1alpha1.MissingOutcome
	absent           v1alpha1.MissingOutcome // empty: absent values are missing
	fixed            int32
	halfLife         time.Duration
	deadband         float64
}

// hasVeto reports whether the score has a bound.
func (r *rule) hasVeto() bool { return !math.IsInf(r.minimum, -1) || !math.IsInf(r.maximum, 1) }

// Compile compiles the spec of a policy. It applies the defaults of the API, so that
// policies from files can be evaluated without an API server. An error names the field that
// can't be evaluated.
func Compile(spec *v1alpha1.ScoringPolicySpec) (*Policy, error) {
	p := &Policy{MinHealthy: int(valueOr(spec.MinHealthyPercent, 50))}
	if f := spec.Freshness; f != nil {
		p.MaxAge, p.freshness = seconds(cmp.Or(f.MaxAgeSeconds, defaultMaxAge)), f.Query
	}
	for i := range spec.Scores {
		s := &spec.Scores[i]
		r := compileRule(spec, s)
		p.Names = append(p.Names, s.Name)
		p.scores, p.queries, p.dynamic = append(p.scores, r), append(p.queries, s.Query), append(p.dynamic, s.NameFrom != nil)
		p.totalWeight += r.weight
		if r.weight > 0 {
			p.deadband = max(p.deadband, r.deadband)
		}
	}
	if t := spec.Total; t != nil {
		if t.Expression != "" {
			expression, err := compileTotal(t.Expression, p.Names, p.dynamic)
			if err != nil {
				return nil, fmt.Errorf("total.expression: %w", err)
			}
			p.expression, p.deadband = expression, 0
			for i := range p.scores {
				if p.contributes(i) {
					p.deadband = max(p.deadband, p.scores[i].deadband)
				}
			}
		}
		p.HasTotal, p.totalRange = true, rangeOf(t.Range)
		p.Names = append(p.Names, cmp.Or(t.Name, "total"))
	}
	return p, nil
}

func compileRule(spec *v1alpha1.ScoringPolicySpec, s *v1alpha1.ScoreSpec) rule {
	r := rule{
		weight:   float64(valueOr(s.Weight, 1)),
		minimum:  math.Inf(-1),
		maximum:  math.Inf(1),
		bounds:   rangeOf(s.Range),
		keepLast: seconds(keepLast(spec, s)),
		then:     cmp.Or(s.Missing.Then, v1alpha1.MissingWorst),
		fixed:    valueOr(s.Missing.FixedValue, Lowest),
		halfLife: seconds(s.Damping.HalfLifeSeconds),
		deadband: float64(s.Damping.Deadband),
	}
	if s.NameFrom != nil {
		r.weight = 0 // as the schema requires
	}
	if s.Minimum != nil {
		r.minimum = numberOfQuantity(*s.Minimum)
	}
	if s.Maximum != nil {
		r.maximum = numberOfQuantity(*s.Maximum)
	}
	if s.Missing.Absent != v1alpha1.AbsentUnknown {
		r.absent = v1alpha1.MissingOutcome(s.Missing.Absent)
	}
	switch n := s.Normalize; {
	case n.Type == v1alpha1.NormalizeLinear && n.Linear != nil:
		from, to := numberOfQuantity(n.Linear.From), numberOfQuantity(n.Linear.To)
		r.normalize = func(v float64) float64 { return linearPoints(v, from, to, r.bounds) }
	case n.Type == v1alpha1.NormalizeSteps:
		steps := make([]step, len(n.Steps))
		for i, st := range n.Steps {
			steps[i] = step{From: numberOfQuantity(st.From), Points: float64(st.Points)}
		}
		slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.From, b.From) })
		r.normalize = func(v float64) float64 { return stepPoints(v, steps, r.bounds) }
	case n.Type == v1alpha1.NormalizeFleet && n.Fleet != nil:
		r.fleet = n.Fleet
	default:
		r.normalize = func(v float64) float64 { return v }
	}
	return r
}

func rangeOf(r v1alpha1.ScoreRange) pointRange {
	if r == v1alpha1.RangeFull {
		return fullRange
	}
	return zeroTo100
}

// numberOfQuantity returns the number nearest to a quantity. AsApproximateFloat64 multiplies by a
// power of ten, so that its 0.7 is greater than the 0.7 of a sample.
func numberOfQuantity(q resource.Quantity) float64 {
	exact := q.DeepCopy() // AsDec changes its receiver
	n, err := strconv.ParseFloat(exact.AsDec().String(), 64)
	if err != nil {
		return q.AsApproximateFloat64() // a decimal number always parses
	}
	return n
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func valueOr(p *int32, fallback int32) int32 {
	if p == nil {
		return fallback
	}
	return *p
}
