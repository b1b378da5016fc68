package gate

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// rank orders the clusters that can take the workload. Clusters within
// tierPoints of the best score are one tier, over all that passed the rules
// other than room, so that a full favorite does not promote the distant ones.
// In the best tier with room two are drawn by capacity and the one with more
// net devices comes first; the rest follows by tier and net devices.
func rank(f shape.Facts, verdicts []Verdict, rules Rules, attempt int) []string {
	tiers := tiersOf(verdicts, float64(rules.TierPoints))
	var order []string
	for _, tier := range tiers {
		tier = slices.DeleteFunc(tier, func(v *Verdict) bool { return v.Rejection != RejectNone })
		if len(tier) == 0 {
			continue
		}
		slices.SortFunc(tier, func(a, b *Verdict) int {
			return cmp.Or(cmp.Compare(b.Net, a.Net), cmp.Compare(a.Cluster, b.Cluster))
		})
		if len(order) == 0 {
			chosen := drawTwo(tier, f.UID, attempt)
			tier = slices.Insert(slices.DeleteFunc(tier, func(v *Verdict) bool { return v == chosen }), 0, chosen)
		}
		for _, v := range tier {
			order = append(order, v.Cluster)
		}
	}
	if i := slices.IndexFunc(order, func(c string) bool { return slices.Contains(rules.Incumbents, c) }); i > 0 {
		kept := order[i]
		order = slices.Insert(slices.Delete(order, i, i+1), 0, kept)
	}
	return order
}

// tiersOf splits by score; candidates of unknown score are the last tier.
func tiersOf(verdicts []Verdict, points float64) [][]*Verdict {
	scored := make([]*Verdict, 0, len(verdicts))
	var unscored []*Verdict
	for i := range verdicts {
		v := &verdicts[i]
		switch {
		case v.Rejection != RejectNone && v.Rejection != RejectNoRoom:
		case v.Score.Known:
			scored = append(scored, v)
		default:
			unscored = append(unscored, v)
		}
	}
	slices.SortFunc(scored, func(a, b *Verdict) int {
		return cmp.Or(cmp.Compare(b.Score.Value, a.Score.Value), cmp.Compare(a.Cluster, b.Cluster))
	})
	var tiers [][]*Verdict
	for len(scored) > 0 {
		end := 1
		for end < len(scored) && scored[0].Score.Value-scored[end].Score.Value <= points {
			end++
		}
		tiers = append(tiers, scored[:end:end])
		scored = scored[end:]
	}
	if len(unscored) > 0 {
		tiers = append(tiers, unscored)
	}
	return tiers
}

// drawTwo candidates with probability proportional to capacity, the same for
// the same workload and attempt, and take the one with more net devices.
func drawTwo(tier []*Verdict, uid string, attempt int) *Verdict {
	if len(tier) == 1 {
		return tier[0]
	}
	h := fnv.New64a()
	h.Write([]byte(uid))
	random := rand.New(rand.NewPCG(h.Sum64(), uint64(attempt)))
	first := drawOne(tier, nil, random)
	second := drawOne(tier, first, random)
	if second.Net > first.Net {
		return second
	}
	return first
}

func drawOne(tier []*Verdict, without *Verdict, random *rand.Rand) *Verdict {
	total := 0.0
	for _, v := range tier {
		if v != without {
			total += weight(v)
		}
	}
	at := random.Float64() * total
	var last *Verdict
	for _, v := range tier {
		if v == without {
			continue
		}
		last = v
		if at -= weight(v); at < 0 {
			break
		}
	}
	return last
}

// weight in the draw: capacity in devices, or 1 where it is unknown.
func weight(v *Verdict) float64 {
	if v.Capacity > 0 {
		return v.Capacity
	}
	return 1
}
