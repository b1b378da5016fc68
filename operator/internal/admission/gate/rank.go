package gate

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
)

// rank orders the clusters that can take the workload:
//  1. Clusters of one preference and within tierPoints of the best score among them form a tier.
//     Full clusters take part, so that a distant cluster does not move up only because the best
//     ones are full.
//  2. In the best tier with room, two clusters are drawn with probability proportional to
//     capacity. The one with more net devices comes first.
//  3. The others follow by tier and net devices.
//  4. Clusters where workloads have not started for longer than usual follow the others, then those whose exporters
//     report devices that Kubernetes does not have, and then those where the workload has to preempt others, for
//     devices or for quota.
//  5. If an incumbent has room, the incumbent moves to the front.
func rank(uid string, verdicts []Verdict, rules Rules, attempt int) []string {
	var order []string
	for _, tier := range tiersOf(verdicts, float64(rules.TierPoints)) {
		tier = slices.DeleteFunc(tier, func(v *Verdict) bool { return v.Rejection != RejectNone })
		if len(tier) == 0 {
			continue
		}
		slices.SortFunc(tier, func(a, b *Verdict) int {
			return cmp.Or(cmp.Compare(b.Net, a.Net), cmp.Compare(a.Cluster, b.Cluster))
		})
		if len(order) == 0 {
			moveToFront(tier, slices.Index(tier, betterOfTwo(tier, uid, attempt)))
		}
		for _, v := range tier {
			order = append(order, v.Cluster)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return drawbacks(verdicts, a) - drawbacks(verdicts, b) })
	if i := slices.IndexFunc(order, func(c string) bool { return slices.Contains(rules.Incumbents, c) }); i > 0 {
		moveToFront(order, i)
	}
	return order
}

// drawbacks returns 4 if the workload has to preempt others on the cluster, 2 more if its metrics contradict each other, and
// 1 more if workloads there do not start. Kueue preempts only for quota.
func drawbacks(verdicts []Verdict, cluster string) (n int) {
	v := verdicts[slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Cluster == cluster })]
	if v.LacksQuota {
		n += 4
	}
	if v.Excess > 0 {
		n += 2
	}
	if v.Slow {
		n++
	}
	return n
}

// moveToFront moves the i-th element to the front and keeps the order of the others.
func moveToFront[T any](list []T, i int) {
	first := list[i]
	copy(list[1:i+1], list[:i])
	list[0] = first
}

// tiersOf splits the clusters by preference and then by score, best tier first.
func tiersOf(verdicts []Verdict, points float64) [][]*Verdict {
	byPreference := map[Number][]*Verdict{}
	for i := range verdicts {
		if v := &verdicts[i]; v.Rejection.countsForTier() {
			byPreference[v.Preference] = append(byPreference[v.Preference], v)
		}
	}
	var tiers [][]*Verdict
	for _, preference := range slices.SortedFunc(maps.Keys(byPreference), func(a, b Number) int { return b.compare(a) }) {
		tiers = append(tiers, tiersByScore(byPreference[preference], points)...)
	}
	return tiers
}

// tiersByScore splits the clusters by score, best tier first. Clusters with an unknown score form
// the last tier, which may be empty.
func tiersByScore(verdicts []*Verdict, points float64) [][]*Verdict {
	scored := make([]*Verdict, 0, len(verdicts))
	var unscored []*Verdict
	for _, v := range verdicts {
		switch {
		case v.Score.Known:
			scored = append(scored, v)
		default:
			unscored = append(unscored, v)
		}
	}
	slices.SortFunc(scored, func(a, b *Verdict) int {
		return cmp.Compare(b.Score.Value, a.Score.Value)
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
	return append(tiers, unscored)
}

// betterOfTwo draws two clusters by capacity and returns the one with more net devices. The
// draw is the same for the same workload and attempt. Two choices spread concurrent
// workloads over the clusters, where always taking the best would send all of them to one.
func betterOfTwo(tier []*Verdict, uid string, attempt int) *Verdict {
	if len(tier) == 1 {
		return tier[0]
	}
	h := fnv.New64a()
	h.Write([]byte(uid))
	random := rand.New(rand.NewPCG(h.Sum64(), uint64(attempt)))
	first := drawByCapacity(tier, nil, random)
	second := drawByCapacity(tier, first, random)
	if second.Net > first.Net {
		return second
	}
	return first
}

// drawByCapacity draws one cluster other than excluded.
func drawByCapacity(tier []*Verdict, excluded *Verdict, random *rand.Rand) *Verdict {
	total := 0.0
	for _, v := range tier {
		if v != excluded {
			total += weight(v)
		}
	}
	at := random.Float64() * total
	var last *Verdict
	for _, v := range tier {
		if v == excluded {
			continue
		}
		last = v
		if at -= weight(v); at < 0 {
			break
		}
	}
	return last
}

// weight of a cluster in the draw: its capacity in devices, or 1 if the capacity is unknown.
func weight(v *Verdict) float64 {
	if v.Capacity > 0 {
		return v.Capacity
	}
	return 1
}
