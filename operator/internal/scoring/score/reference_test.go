//go:build !race

package score

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// This file is a second implementation of operator/docs/scoring.md, in exact arithmetic and
// without state that is shared between rounds, scores or clusters. It shares no code with the
// first one.

// awkward are values at which conversions fail.
var awkward = []string{
	"0", "-0", "1", "-1", "0.1", "0.3", "0.35", "0.57", "0.7", "7", "57", "100", "199.5", "200", "1e-300", "5e-324", "-5e-324", "1e300",
	"1.7976931348623157e308", "-1.7976931348623157e308", "0.30000000000000004", "28.999999999999996",
}

func rat(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text)
	}
	return r
}

// exactOf is the exact value of a float.
func exactOf(v float64) *big.Rat {
	r := new(big.Rat)
	r.SetFloat64(v)
	return r
}

func (m *model) limits(s *v1alpha1.ScoreSpec) (low, high *big.Rat) {
	if s.Range == v1alpha1.RangeFull {
		return rat("-100"), rat("100")
	}
	return rat("0"), rat("100")
}

// between returns low + (v-from)/(to-from)*(high-low), within low..high.
func between(v, from, to, low, high *big.Rat) *big.Rat {
	if from.Cmp(to) == 0 {
		if v.Cmp(from) > 0 {
			return high
		}
		return low
	}
	sub := func(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
	part := new(big.Rat).Quo(sub(v, from), sub(to, from))
	points := new(big.Rat).Add(low, new(big.Rat).Mul(part, sub(high, low)))
	return within(points, low, high)
}

func within(v, low, high *big.Rat) *big.Rat {
	switch {
	case v.Cmp(low) < 0:
		return low
	case v.Cmp(high) > 0:
		return high
	}
	return v
}

// model is the state that the document ascribes to a score of a cluster.
type model struct {
	spec  *v1alpha1.ScoringPolicySpec
	cells map[string]*modelCell // by score and cluster
	// fresh is the time of the last fresh value of a cluster, and refusedSince the first of the
	// present refusals, in seconds.
	fresh        map[string]float64
	refusedSince *float64
}

type modelCell struct {
	points    float64 // after damping
	published int
	state     State
	last      float64 // sample time
	hasValue  bool    // a value that can be kept
	wasScored bool    // the published value comes from points
	mean      float64
	updated   float64
	// noSeries is the time of the last response without a series, if no later one says something
	// else, and isKnown means that the present response says something about the cluster.
	noSeries *float64
	isKnown  bool
}

// points converts the usable values of a score, by cluster.
func (m *model) points(s *v1alpha1.ScoreSpec, values map[string]float64) map[string]float64 {
	low, high := m.limits(s)
	points := map[string]float64{}
	for cluster, value := range values {
		v := exactOf(value)
		var p *big.Rat
		switch s.Normalize.Type {
		case v1alpha1.NormalizeLinear:
			p = between(v, sampled(s.Normalize.Linear.From), sampled(s.Normalize.Linear.To), low, high)
		case v1alpha1.NormalizeSteps:
			p = low
			for _, step := range s.Normalize.Steps {
				if v.Cmp(sampled(step.From)) >= 0 {
					p = within(big.NewRat(int64(step.Points), 1), low, high)
				}
			}
		case v1alpha1.NormalizeFleet:
			p = m.compared(s, value, values, low, high)
		case v1alpha1.NormalizeIdentity:
			p = within(v, low, high)
		}
		exact, _ := p.Float64()
		points[cluster] = math.Round(exact*1e9) / 1e9
	}
	return points
}

func (m *model) compared(s *v1alpha1.ScoreSpec, value float64, values map[string]float64, low, high *big.Rat) *big.Rat {
	var all []float64
	better := 0
	for _, v := range values {
		all = append(all, v)
		if v > value && !s.Normalize.Fleet.Descending || v < value && s.Normalize.Fleet.Descending {
			better++
		}
	}
	worst, best := exactOf(slices.Min(all)), exactOf(slices.Max(all))
	if s.Normalize.Fleet.Descending {
		worst, best = best, worst
	}
	switch {
	case s.Normalize.Fleet.Method == v1alpha1.FleetRank && len(all) > 1:
		return between(big.NewRat(int64(len(all)-1-better), int64(len(all)-1)), rat("0"), rat("1"), low, high)
	case worst.Cmp(best) == 0 || len(all) == 1:
		return high
	}
	return between(exactOf(value), worst, best, low, high)
}

// sampled is the value of a sample that is written as the quantity: the float next to the decimal
// number.
func sampled(q resource.Quantity) *big.Rat {
	v, _ := rat(q.AsDec().String()).Float64()
	return exactOf(v)
}

// round evaluates a round at a time in seconds. values are the usable values, and outcomes the
// reasons why there is none, by score name and cluster.
func (m *model) round(now float64, clusters []string, values map[string]map[string]float64, outcomes map[string]map[string]Outcome) {
	known, knownFresh := 0, 0
	for _, cluster := range clusters {
		last, seen := m.fresh[cluster]
		isKnown := seen && now-last <= 24*3600
		isFresh := slices.ContainsFunc(m.spec.Scores, func(s v1alpha1.ScoreSpec) bool { _, ok := values[s.Name][cluster]; return ok })
		if isKnown {
			known++
		}
		if isKnown && isFresh {
			knownFresh++
		}
		if isFresh {
			m.fresh[cluster] = now
		}
	}
	if known >= 3 && float64(knownFresh)/float64(known) < float64(*m.spec.MinHealthyPercent)/100 {
		if m.refusedSince == nil {
			m.refusedSince = &now
		}
	} else {
		m.refusedSince = nil
	}
	for i := range m.spec.Scores {
		s := &m.spec.Scores[i]
		points := m.points(s, values[s.Name])
		for _, cluster := range clusters {
			m.cell(s, cluster).update(m, s, values[s.Name][cluster], points[cluster], outcomes[s.Name][cluster], now)
		}
	}
}

func (m *model) cell(s *v1alpha1.ScoreSpec, cluster string) *modelCell {
	key := s.Name + "/" + cluster
	if m.cells[key] == nil {
		m.cells[key] = &modelCell{state: Omitted}
	}
	return m.cells[key]
}

func (c *modelCell) update(m *model, s *v1alpha1.ScoreSpec, raw, points float64, outcome Outcome, now float64) {
	keepLast := float64(*s.Missing.KeepLastSeconds)
	delayed := false
	if since := m.refusedSince; outcome == OK && since != nil && now < *since+keepLast {
		delayed = !c.hasValue || c.last < *since && now < c.last+keepLast
	}
	if c.isKnown = !delayed && outcome != Failed; c.isKnown {
		c.noSeries = nil
	}
	if outcome == Absent {
		c.noSeries = &now
	}
	if outcome != OK || delayed {
		c.miss(s, now, keepLast)
		return
	}
	c.damp(s, points, now)
	c.last = now
	switch {
	case s.Minimum != nil && exactOf(raw).Cmp(sampled(*s.Minimum)) < 0, s.Maximum != nil && exactOf(raw).Cmp(sampled(*s.Maximum)) > 0:
		c.state, c.published, c.wasScored = Vetoed, -100, false
	default:
		low := 0
		if s.Range == v1alpha1.RangeFull {
			low = -100
		}
		rounded := int(math.Floor(math.Abs(c.points) + 0.5))
		if c.points < 0 {
			rounded = -rounded
		}
		if !c.wasScored || rounded <= low || math.Abs(c.points-float64(c.published)) >= float64(s.Damping.Deadband)-1e-8 {
			c.published = rounded
		}
		c.state, c.wasScored = Scored, true
	}
	c.hasValue = true
}

func (c *modelCell) miss(s *v1alpha1.ScoreSpec, now, keepLast float64) {
	if c.hasValue && now < c.last+keepLast {
		if c.state != Vetoed {
			c.state = Kept
		}
		return
	}
	c.hasValue, c.wasScored = false, false
	then := s.Missing.Then
	// The absent series was seen in this round, or less than the keep time ago.
	if s.Missing.Absent != v1alpha1.AbsentUnknown && c.noSeries != nil && (c.isKnown || now < *c.noSeries+keepLast) {
		then = v1alpha1.MissingOutcome(s.Missing.Absent)
	}
	switch {
	case !c.isKnown && c.state == Omitted: // nothing is known about the cluster
	case then == v1alpha1.MissingOmit:
		c.state, c.published = Omitted, 0
	case then == fixedIfAbsent:
		c.state, c.published = Fixed, int(*s.Missing.FixedValue)
	default:
		c.state, c.published = Worst, -100
	}
}

func (c *modelCell) damp(s *v1alpha1.ScoreSpec, points, now float64) {
	if !c.hasValue {
		c.points, c.mean, c.updated = points, points, now
		return
	}
	if half := float64(s.Damping.HalfLifeSeconds); half > 0 {
		c.mean += (points - c.mean) * (1 - math.Pow(0.5, (now-c.updated)/half))
	} else {
		c.mean = points
	}
	c.updated = now
	c.points = c.mean
}

// total returns the total of a cluster. isPublished means that there is one now.
func (m *model) total(cluster string, isPublished bool) (value float64, state State) {
	sum, weights := new(big.Rat), int64(0)
	worst, omitted, kept := false, false, false
	for i := range m.spec.Scores {
		s := &m.spec.Scores[i]
		c, weight := m.cell(s, cluster), int64(*s.Weight)
		hasVeto := s.Minimum != nil || s.Maximum != nil
		switch {
		case c.state == Vetoed:
			return -100, Vetoed
		case c.state == Worst && (weight > 0 || hasVeto), c.state == Omitted && hasVeto && (c.isKnown || isPublished):
			worst = true
		case c.state == Omitted && (weight > 0 || hasVeto):
			omitted = true
		}
		points := c.points
		if c.state == Fixed {
			points = float64(c.published)
		}
		kept = kept || c.state == Kept && (weight > 0 || hasVeto)
		low, high := m.limits(s)
		share := new(big.Rat).Quo(new(big.Rat).Sub(exactOf(points), low), new(big.Rat).Sub(high, low))
		sum.Add(sum, share.Mul(share, big.NewRat(100*weight, 1)))
		weights += weight
	}
	switch {
	case worst:
		return -100, Worst
	case omitted, weights == 0:
		return 0, Omitted
	}
	value, _ = within(sum.Quo(sum, big.NewRat(weights, 1)), rat("0"), rat("100")).Float64()
	if kept {
		return value, Kept
	}
	return value, Scored
}

// TestEvaluateAgreesWithTheDocument compares with the model on random policies and values.
func TestEvaluateAgreesWithTheDocument(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 7))
		spec := randomSpec(random)
		p := mustCompile(t, spec)
		clusters := []string{"a", "b", "c", "d", "e"}[:1+random.IntN(5)]
		m := &model{spec: spec, cells: map[string]*modelCell{}, fresh: map[string]float64{}}
		var last *Result
		now, isPublished := 0.0, map[string]bool{} // totals by cluster
		for n := range 12 {
			values, outcomes := map[string]map[string]float64{}, map[string]map[string]Outcome{}
			in := Samples{Clusters: clusters}
			for _, s := range spec.Scores {
				values[s.Name], outcomes[s.Name] = map[string]float64{}, map[string]Outcome{}
				inputs := make([]Input, len(clusters))
				for c, cluster := range clusters {
					if random.IntN(4) == 0 {
						inputs[c].Outcome = []Outcome{Absent, NaN, Infinite, Duplicate, Stale, Failed}[random.IntN(6)]
						outcomes[s.Name][cluster] = inputs[c].Outcome
						continue
					}
					inputs[c].Value = randomValue(random)
					values[s.Name][cluster] = inputs[c].Value
				}
				in.Scores = append(in.Scores, inputs)
			}
			last = Evaluate(p, in, last, t0.Add(time.Duration(now)*time.Second))
			m.round(now, clusters, values, outcomes)
			for c, cluster := range clusters {
				var show string
				for i := range spec.Scores {
					cell, want := &last.Row(c)[i], m.cell(&spec.Scores[i], cluster)
					show += fmt.Sprintf("%s: %d %s, the document says %d %s (%v, %v points)\n", spec.Scores[i].Name, cell.Value, cell.State, want.published, want.state, cell.Points, want.points)
					if int(cell.Value) != want.published && !isNearHalf(want.points) || cell.State != want.state {
						t.Fatalf("seed %d, round %d, cluster %s: %s%+v\n%+v", seed, n, cluster, show, in.Scores[i][c], spec.Scores[i])
					}
					want.published = int(cell.Value)
				}
				total := last.Row(c)[len(spec.Scores)]
				value, state := m.total(cluster, isPublished[cluster])
				isPublished[cluster] = total.State != Omitted
				hasDeadband := slices.ContainsFunc(spec.Scores, func(s v1alpha1.ScoreSpec) bool { return s.Damping.Deadband > 0 })
				if total.State != state || state != Omitted && !hasDeadband && math.Abs(float64(total.Value)-value) > 0.5+1e-6 {
					t.Fatalf("seed %d, round %d, cluster %s: total %d %s, the document says %v %s\n%s", seed, n, cluster, total.Value, total.State, value, state, show)
				}
			}
			now += []float64{0, 1, 30, 30, 30, 59, 60, 61, 300, 90000}[random.IntN(10)]
		}
	}
}

// isNearHalf reports whether the result of rounding depends on the errors of binary fractions.
func isNearHalf(points float64) bool {
	return math.Abs(points-math.Floor(points)-0.5) < 1e-6
}

func randomValue(random *rand.Rand) float64 {
	if random.IntN(2) == 0 {
		v, _ := rat(awkward[random.IntN(len(awkward))]).Float64()
		return v
	}
	return float64(random.IntN(2000)) / 10
}

func randomSpec(random *rand.Rand) *v1alpha1.ScoringPolicySpec {
	spec := &v1alpha1.ScoringPolicySpec{MinHealthyPercent: ptr([]int32{0, 50, 60, 100}[random.IntN(4)]), Total: &v1alpha1.TotalSpec{}}
	quantity := func() resource.Quantity {
		return resource.MustParse([]string{"0", "-1", "0.1", "0.3", "300m", "0.7", "7", "64", "200", "1k", "1Ki", "1e18"}[random.IntN(12)])
	}
	for i := range 1 + random.IntN(3) {
		s := v1alpha1.ScoreSpec{Name: fmt.Sprintf("s%d", i), Query: "q", Weight: ptr(int32(random.IntN(4)))}
		s.Range = []v1alpha1.ScoreRange{"", v1alpha1.RangeFull}[random.IntN(2)]
		s.Normalize.Type = []v1alpha1.NormalizeType{v1alpha1.NormalizeLinear, v1alpha1.NormalizeSteps, v1alpha1.NormalizeFleet, v1alpha1.NormalizeIdentity}[random.IntN(4)]
		switch s.Normalize.Type {
		case v1alpha1.NormalizeLinear:
			s.Normalize.Linear = &v1alpha1.Linear{From: quantity(), To: quantity()}
		case v1alpha1.NormalizeSteps:
			for _, from := range []string{"-5", "0", "0.3", "0.57", "0.7", "57", "100"}[random.IntN(6):] {
				s.Normalize.Steps = append(s.Normalize.Steps, v1alpha1.Step{From: resource.MustParse(from), Points: int32(random.IntN(201) - 100)})
			}
		case v1alpha1.NormalizeFleet:
			s.Normalize.Fleet = &v1alpha1.Fleet{Method: []v1alpha1.FleetMethod{v1alpha1.FleetMinMax, v1alpha1.FleetRank}[random.IntN(2)], Descending: random.IntN(2) == 0}
		case v1alpha1.NormalizeIdentity:
		}
		if random.IntN(3) == 0 {
			s.Minimum = ptr(quantity())
		}
		if random.IntN(3) == 0 {
			s.Maximum = ptr(quantity())
		}
		s.Missing.KeepLastSeconds = ptr([]int32{0, 60, 300, 86400}[random.IntN(4)])
		s.Missing.Then = []v1alpha1.MissingOutcome{v1alpha1.MissingWorst, v1alpha1.MissingOmit}[random.IntN(2)]
		s.Missing.Absent = []v1alpha1.AbsentOutcome{v1alpha1.AbsentUnknown, v1alpha1.AbsentUnknown, "Worst", "Omit", "Fixed"}[random.IntN(5)]
		if s.Missing.Absent == v1alpha1.AbsentFixed {
			s.Missing.FixedValue = ptr(int32(random.IntN(101)))
		}
		s.Damping.HalfLifeSeconds = []int32{0, 0, 60, 3600}[random.IntN(4)]
		s.Damping.Deadband = []int32{0, 0, 0, 7}[random.IntN(4)]
		spec.Scores = append(spec.Scores, s)
	}
	return spec
}
