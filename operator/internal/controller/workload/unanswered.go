package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// failure of the latest try to have a question answered.
type failure struct {
	question string
	good     time.Time
	err      string
}

// unanswered says of each gate which of the questions that were of use lately failed
// when they were asked last, since when the first of them is not answered, and why.
func (a *asker) unanswered() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	failures, generations := map[string][]failure{}, map[string]int64{}
	for s := range a.plans {
		generations[s.gate] = max(generations[s.gate], s.generation)
	}
	for s, p := range a.plans {
		if s.generation < generations[s.gate] {
			continue
		}
		for i := range p.questions {
			q := &p.questions[i]
			if h := cmp.Or(q.broken, a.held[q.key]); h != nil && h.err != nil {
				failures[s.gate] = append(failures[s.gate], failure{q.Name, h.good, h.err.Error()})
			}
		}
	}
	said := map[string]string{}
	for name, list := range failures {
		said[name] = sum(list)
	}
	return said
}

// sum names every question that failed once, and tells more of the one that nobody
// has answered for the longest time.
func sum(list []failure) string {
	first := slices.MinFunc(list, func(a, b failure) int {
		return cmp.Or(a.good.Compare(b.good), strings.Compare(a.question, b.question), strings.Compare(a.err, b.err))
	})
	var names []string
	for _, f := range list {
		names = append(names, f.question)
	}
	slices.Sort(names)
	since := ""
	if !first.good.IsZero() {
		since = " since " + first.good.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("not answered%s: %s: %s", since, strings.Join(slices.Compact(names), ", "), first.err)
}
