package workload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// failure of the latest try to have a question answered, or answered by all.
type failure struct {
	question string
	good     time.Time
	why      string
	partial  bool
}

func failureOf(question string, h *held) (failure, bool) {
	switch {
	case h == nil:
	case h.err != nil:
		return failure{question, h.good, h.err.Error(), false}, true
	case len(h.lacking) > 0:
		first := slices.Min(slices.Collect(maps.Keys(h.lacking)))
		return failure{question, h.good, first + ": " + h.lacking[first], true}, true
	case h.partial:
		return failure{question, h.good, "some stores of the source did not answer", true}, true
	}
	return failure{}, false
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
			if f, failed := failureOf(q.Name, cmp.Or(q.broken, a.held[q.key])); failed {
				failures[s.gate] = append(failures[s.gate], f)
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
// has answered for the longest time. Those answered in part count where none failed.
func sum(list []failure) string {
	text := "answered in part"
	if slices.ContainsFunc(list, func(f failure) bool { return !f.partial }) {
		list = slices.DeleteFunc(list, func(f failure) bool { return f.partial })
		text = "not answered"
	}
	first := slices.MinFunc(list, func(a, b failure) int {
		return cmp.Or(a.good.Compare(b.good), strings.Compare(a.question, b.question), strings.Compare(a.why, b.why))
	})
	if !first.partial && !first.good.IsZero() {
		text += " since " + first.good.UTC().Format(time.RFC3339)
	}
	var names []string
	for _, f := range list {
		names = append(names, f.question)
	}
	slices.Sort(names)
	return fmt.Sprintf("%s: %s: %s", text, strings.Join(slices.Compact(names), ", "), first.why)
}
