package querycache

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// failure of the latest try to have a question answered, or answered by all.
type queryFailure struct {
	question string
	good     time.Time
	why      string
	partial  bool
}

func failureOf(question string, h *cachedResult) (queryFailure, bool) {
	switch {
	case h == nil:
	case h.err != nil:
		return queryFailure{question, h.succeededAt, h.err.Error(), false}, true
	case len(h.failedClusters) > 0:
		first := slices.Min(slices.Collect(maps.Keys(h.failedClusters)))
		return queryFailure{question, h.succeededAt, first + ": " + h.failedClusters[first], true}, true
	case h.partial:
		return queryFailure{question, h.succeededAt, "some stores of the source did not answer", true}, true
	}
	return queryFailure{}, false
}

// unanswered says of each gate which of the questions that were of use lately failed
// when they were asked last, since when the first of them is not answered, and why.
func (a *Cache) failingByGate() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	failures, generations := map[string][]queryFailure{}, map[string]int64{}
	for s := range a.plans {
		generations[s.Gate] = max(generations[s.Gate], s.Generation)
	}
	for s, p := range a.plans {
		if s.Generation < generations[s.Gate] {
			continue
		}
		for i := range p.queries {
			q := &p.queries[i]
			if f, failed := failureOf(q.Name, cmp.Or(q.renderError, a.results[q.key])); failed {
				failures[s.Gate] = append(failures[s.Gate], f)
			}
		}
	}
	said := map[string]string{}
	for name, list := range failures {
		said[name] = summarize(list)
	}
	return said
}

// sum names every question that failed once, and tells more of the one that nobody
// has answered for the longest time. Those answered in part count where none failed.
func summarize(list []queryFailure) string {
	text := "answered in part"
	if slices.ContainsFunc(list, func(f queryFailure) bool { return !f.partial }) {
		list = slices.DeleteFunc(list, func(f queryFailure) bool { return f.partial })
		text = "not answered"
	}
	first := slices.MinFunc(list, func(a, b queryFailure) int {
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
