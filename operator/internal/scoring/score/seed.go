package score

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// FromSeeds returns a Result from published scores, as the starting point of the first
// round after a restart. Keep times and damping continue where the previous process stopped. Result.Matched
// is not set: a query that has matched before may have left no published score.
func FromSeeds(p *Policy, seeds []Seed, now time.Time) *Result {
	seeds = slices.Clone(seeds)
	slices.SortFunc(seeds, func(a, b Seed) int { return cmp.Compare(a.Cluster, b.Cluster) })
	p = p.Expand(publishedNames(p, seeds))
	r := &Result{
		Time: At(now), Names: p.Names,
		Cells:     make([]Cell, len(seeds)*len(p.Names)),
		lastFresh: make([]Instant, len(seeds)),
		AgeKnown:  map[string]bool{},
	}
	for i, seed := range seeds {
		if seed.Stale {
			r.AgeKnown[seed.Cluster] = true
		}
		r.Clusters = append(r.Clusters, seed.Cluster)
		row := r.Row(i)
		for j, name := range p.Names {
			if s, ok := seed.Scores[name]; ok && s.State != Omitted {
				row[j].seed(s, r.Time)
			}
		}
		for j := range p.queries {
			if s, known := seed.Scores[p.Names[j]]; known && !s.Unmatched {
				row[j].history.hasMatched = true
				row[j].history.absentAt = min(p.scores[j].absentTime(s), r.Time)
				if seed.Stale && !s.MissingSince.IsZero() {
					row[j].seedStale(s, r.Time)
				}
			}
			r.lastFresh[i] = max(r.lastFresh[i], row[j].SampleTime)
		}
		if p.HasTotal {
			row[len(row)-1].history.seen = 0
		}
	}
	return r
}

// absentTime returns the last known time at which the cluster had no series, as missing.absent
// accepts, or 0 if the published score is not the outcome of missing.absent.
func (r *rule) absentTime(s SeedScore) Instant {
	switch {
	case r.absent == v1alpha1.MissingWorst && s.State == Worst, r.absent == fixedIfAbsent && s.State == Fixed:
	default:
		return 0
	}
	if s.MissingSince.IsZero() {
		return At(s.SampleTime)
	}
	return At(s.MissingSince)
}

// publishedNames returns the published names of the scores with nameFrom.
func publishedNames(p *Policy, seeds []Seed) map[string][]string {
	published := map[string]bool{}
	for _, seed := range seeds {
		for name, s := range seed.Scores {
			published[name] = published[name] || s.State != Omitted
		}
	}
	maps.DeleteFunc(published, func(_ string, isPublished bool) bool { return !isPublished })
	sorted := slices.Sorted(maps.Keys(published))
	names := map[string][]string{}
	for i, dynamic := range p.dynamic {
		if dynamic {
			names[p.Names[i]] = NamesFrom(p.Names[i], sorted)
		}
	}
	return names
}

// AssumeMatched returns a previous result without clusters, in which every query of the
// policy has matched one. Evaluations of scripted or recorded series start from it: a
// series that is missing there says something about the cluster, and not about the query. The default
// freshness query must match all the same: the source may lack its series.
func AssumeMatched(p *Policy) *Result {
	r := &Result{Names: p.Names, Matched: map[string]bool{p.freshness: p.Aged == nil}}
	for _, query := range p.queries {
		r.Matched[query] = true
	}
	return r
}

// seed restores a cell from its published score. Only a score that comes from a sample can
// be kept. The points behind a veto are unknown, so the next value applies undamped.
func (c *Cell) seed(s SeedScore, now Instant) {
	c.Raw = math.NaN()
	c.Value, c.State, c.Since, c.history.hasPublished = s.Value, s.State, At(s.MissingSince), true
	switch s.State {
	case Scored, Kept, Vetoed:
	case Worst, Fixed, Omitted:
		c.history.seen, c.history.maybeSeen = min(c.Since, now), true
		return
	}
	// A clock that was corrected must not prolong a keep time.
	c.SampleTime = min(At(s.SampleTime), now)
	c.history.seen, c.Points = c.SampleTime, float64(s.Value)
	c.history.hasPoints, c.history.skipDamping = true, s.State == Vetoed
	c.history.updated, c.history.mean = c.SampleTime, c.Points
	if s.State == Vetoed {
		c.Points = math.NaN()
	}
}

// seedStale restores that the cluster had a value, and not a response without a series that
// missing.absent accepts.
func (c *Cell) seedStale(s SeedScore, now Instant) {
	c.history.seen, c.history.maybeSeen, c.history.absentAt = min(At(s.MissingSince), now), false, 0
}
