package score

import (
	"cmp"
	"slices"
	"time"
)

// FromSeeds returns a Result from published scores, as the starting point of the first
// round after a restart. Holds and damping continue where the previous process stopped.
func FromSeeds(p *Policy, seeds []Seed, now time.Time) *Result {
	seeds = slices.Clone(seeds)
	slices.SortFunc(seeds, func(a, b Seed) int { return cmp.Compare(a.Cluster, b.Cluster) })
	r := &Result{
		Time: At(now), Names: p.Names,
		Cells:     make([]Cell, len(seeds)*len(p.Names)),
		lastFresh: make([]Instant, len(seeds)),
	}
	for i, seed := range seeds {
		r.Clusters = append(r.Clusters, seed.Cluster)
		if seed.Fresh {
			r.lastFresh[i] = At(seed.SampleTime)
		}
		row := r.Row(i)
		for j, name := range p.Names {
			if v, ok := seed.Values[name]; ok {
				row[j].seed(v, At(seed.SampleTime))
			}
		}
	}
	return r
}

// seed restores a cell from its published value. Lowest is either a veto or a missing
// value. There is nothing to hold in both cases.
func (c *Cell) seed(v int32, sampleTime Instant) {
	c.Value, c.history.hasPublished = v, true
	if v == Lowest {
		c.State = Worst
		return
	}
	c.Points, c.State, c.SampleTime = float64(v), Scored, sampleTime
	c.history.hasPoints, c.history.updated, c.history.mean = true, sampleTime, float64(v)
}
