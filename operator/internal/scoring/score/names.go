package score

import (
	"slices"
	"strings"
	"time"
)

// maxNameLength is the length of the longest name of a score.
const maxNameLength = 63

// NameOf returns the name of a score with nameFrom for one value of the label: the score's
// own name, a hyphen, and the value, in which each group of characters other than letters and
// digits is one hyphen. ok is false if the value gives no name: nothing of it is left, or the
// name is too long.
func NameOf(score, value string) (name string, ok bool) {
	var b strings.Builder
	b.WriteString(score)
	empty := true
	hyphen := true // before the next character
	for i := range len(value) {
		c := value[i]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			if hyphen {
				b.WriteByte('-')
			}
			b.WriteByte(c)
			hyphen, empty = false, false
			continue
		}
		hyphen = true
	}
	return b.String(), !empty && b.Len() <= maxNameLength
}

// NamesFrom returns those names that a score with nameFrom gave, in their order.
func NamesFrom(score string, names []string) []string {
	var found []string
	for _, name := range names {
		if strings.HasPrefix(name, score+"-") {
			found = append(found, name)
		}
	}
	return found
}

// Expand returns the policy with one score for each name of the scores with nameFrom. names
// are the names by the name of such a score. A policy without nameFrom stays as it is.
func (p *Policy) Expand(names map[string][]string) *Policy {
	if !slices.Contains(p.dynamic, true) {
		return p
	}
	expanded := *p
	expanded.Names, expanded.queries, expanded.scores, expanded.dynamic = nil, nil, nil, nil
	for i := range p.scores {
		own := []string{p.Names[i]}
		if p.dynamic[i] {
			own = names[p.Names[i]]
		}
		for _, name := range own {
			expanded.Names = append(expanded.Names, name)
			expanded.queries, expanded.scores = append(expanded.queries, p.queries[i]), append(expanded.scores, p.scores[i])
			expanded.dynamic = append(expanded.dynamic, false)
		}
	}
	if p.HasTotal {
		expanded.Names = append(expanded.Names, p.Names[len(p.Names)-1])
	}
	return &expanded
}

// SortNames returns the names of the scores, of which those with nameFrom can have several, in
// the order of the policy.
func (p *Policy) SortNames(names []string) []string {
	var sorted []string
	for i, name := range p.Names {
		if i < len(p.dynamic) && p.dynamic[i] {
			sorted = append(sorted, slices.Sorted(slices.Values(NamesFrom(name, names)))...)
		} else if slices.Contains(names, name) {
			sorted = append(sorted, name)
		}
	}
	return sorted
}

// IsInUse reports whether a cluster has a usable or a kept value of the score with the
// given name.
func (r *Result) IsInUse(name string) bool {
	return r.anyCell(name, func(_ string, c *Cell) bool { return c.history.hasPoints })
}

// MayBeInUse reports whether a cluster had a usable value of the score with the given name
// within 24 hours before now, and nothing is known about the cluster since then. isSilent
// reports the clusters whose part of the source does not respond.
func (r *Result) MayBeInUse(name string, now time.Time, isSilent func(cluster string) bool) bool {
	return r.anyCell(name, func(cluster string, c *Cell) bool {
		return !c.history.seen.IsZero() && At(now).sub(c.history.seen) <= healthyWindow && isSilent(cluster)
	})
}

// anyCell reports whether the condition is true for a cluster's score with the given name.
func (r *Result) anyCell(name string, condition func(cluster string, c *Cell) bool) bool {
	j := slices.Index(r.Names, name)
	if j < 0 {
		return false
	}
	for i, cluster := range r.Clusters {
		if condition(cluster, &r.Row(i)[j]) {
			return true
		}
	}
	return false
}
