package score

import (
	"cmp"
	"slices"
	"time"
)

// FromSeeds makes what the next round starts from out of what is published, so
// that a restart neither forgets a hold nor jumps over damping.
func FromSeeds(p *Policy, seeds []Seed, now time.Time) *Result {
	seeds = slices.Clone(seeds)
	slices.SortFunc(seeds, func(a, b Seed) int { return cmp.Compare(a.Cluster, b.Cluster) })
	r := &Result{
		Time: At(now), Names: p.Names,
		Cells:    make([]Cell, len(seeds)*len(p.Names)),
		answered: make([]Instant, len(seeds)),
	}
	for i, seed := range seeds {
		r.Clusters = append(r.Clusters, seed.Cluster)
		if seed.Fresh {
			r.answered[i] = At(seed.SampleTime)
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

func (c *Cell) seed(v int32, sampled Instant) {
	c.Value, c.memory.published = v, true
	if v == Lowest {
		c.State = Worst // or vetoed; nothing to hold either way
		return
	}
	c.Points, c.State, c.SampleTime = float64(v), Scored, sampled
	c.memory.good, c.memory.at, c.memory.smooth = true, sampled, float64(v)
}
