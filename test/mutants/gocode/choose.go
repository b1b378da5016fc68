package main

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

// queue holds the mutants of a package in the order in which they are tested.
type queue struct {
	mutants []mutant
	// quota is the number of mutants that the run tests. Those that do not compile are not counted.
	quota int
}

func (q *queue) next() mutant {
	m := q.mutants[0]
	q.mutants = q.mutants[1:]
	return m
}

// queues returns the mutants of each package, shuffled by the seed. The order in one package does not
// depend on the other packages.
func (o options) queues(sources []*source, found *report) []*queue {
	var queues []*queue
	var sizes []int
	for _, s := range sources {
		mutants := found.withoutEquivalents(s, o.equivalents)
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool {
			return !o.only.MatchString(m.file.name + ": " + m.function + ": " + m.change)
		})
		name := fnv.New64a()
		name.Write([]byte(s.path))
		random := rand.New(rand.NewPCG(o.seed, name.Sum64()))
		random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
		queues, sizes = append(queues, &queue{mutants: mutants}), append(sizes, len(mutants))
	}
	for i, quota := range shares(o.count, sizes) {
		queues[i].quota = quota
		found.chosen += quota
	}
	return queues
}

// shares divides n in proportion to the sizes. It never returns more than a size. What rounding leaves
// goes to the largest remainders, then to the earlier index.
func shares(n int, sizes []int) []int {
	total := 0
	for _, size := range sizes {
		total += size
	}
	quotas := make([]int, len(sizes))
	if n = min(n, total); n <= 0 {
		return quotas
	}
	order := make([]int, len(sizes))
	left := n
	for i, size := range sizes {
		order[i], quotas[i] = i, n*size/total
		left -= quotas[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return n*sizes[b]%total - n*sizes[a]%total })
	for _, i := range order[:left] {
		quotas[i]++
	}
	return quotas
}
