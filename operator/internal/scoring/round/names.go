package round

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// readNames returns the report of a score with nameFrom, and the input of each of its scores
// for each cluster.
func (results queryResults) readNames(s *v1alpha1.ScoreSpec, req Request, matched map[string]bool) (QueryReport, [][]score.Input) {
	r, clusters := results[s.Query], req.Clusters
	report := QueryReport{
		Query: s.Query, Duration: r.response.Duration, Series: len(r.response.Samples), Problems: r.problems, Err: r.err, Infos: r.response.Infos,
	}
	var found namedSamples
	if r.problems == nil && r.err == nil {
		found = nameSamples(s, r.response.Samples)
		report.Warnings = found.warnings(s.NameFrom.Label)
		report.Collisions = found.collisions(s.NameFrom.Label)
	}
	isSilent := func(cluster string) bool {
		_, failed := r.response.Failed[cluster]
		return failed || len(found.samples) == 0 || r.response.Partial
	}
	inUse, maybeInUse := knownNames(s.Name, req.Previous, req.Now, isSilent)
	report.Names, report.LeftOut = chooseNames(inUse, slices.Sorted(maps.Keys(found.samples)), maybeInUse, int(cmp.Or(s.NameFrom.Limit, 16)))
	for _, problem := range report.NameProblems() {
		report.Warnings = append(report.Warnings, "the query "+problem)
	}
	columns := make([][]score.Input, len(report.Names))
	for i, name := range report.Names {
		switch {
		case r.problems != nil:
			columns[i] = repeatOutcome(score.Invalid, clusters.Len())
		case r.err != nil:
			columns[i] = repeatOutcome(score.Failed, clusters.Len())
		case len(found.values[name]) > 1:
			columns[i] = repeatOutcome(score.Colliding, clusters.Len())
		default:
			columns[i] = inputsOf(clusters.Group(found.samples[name]))
			markNoResponse(columns[i], clusters.Names(), &r.response)
		}
	}
	if r.problems != nil || r.err != nil {
		report.Warnings = append(report.Warnings, r.response.Warnings...)
		return report, columns
	}
	r.judgeMatch(&report, clusters.Group(r.response.Samples), clusters, matched,
		fmt.Sprintf("The query must return one series per cluster and value of the label %[1]s, as in sum by (%[2]s, %[1]s) (...)", s.NameFrom.Label, clusters.Label()), columns...)
	return report, columns
}

// namedSamples are the samples of a query with nameFrom.
type namedSamples struct {
	// samples, and the values of the label that give the name, by name of the score.
	samples map[string][]query.Sample
	values  map[string]map[string]bool
	// unnamed are the values that give no name, one for each sample.
	unnamed []string
}

// nameSamples groups the samples by the name of their score.
func nameSamples(s *v1alpha1.ScoreSpec, samples []query.Sample) namedSamples {
	found := namedSamples{samples: map[string][]query.Sample{}, values: map[string]map[string]bool{}}
	for _, sample := range samples {
		value := sample.Labels[s.NameFrom.Label]
		name, ok := score.NameOf(s.Name, value)
		if !ok {
			found.unnamed = append(found.unnamed, value)
			continue
		}
		found.samples[name] = append(found.samples[name], sample)
		if found.values[name] == nil {
			found.values[name] = map[string]bool{}
		}
		found.values[name][value] = true
	}
	return found
}

// warnings reports the samples that give no score.
func (n *namedSamples) warnings(label string) []string {
	if len(n.unnamed) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d series give no score because their label %s is empty or too long, such as %q", len(n.unnamed), label, slices.Min(n.unnamed))}
}

// collisions describes each name that several values of the label give, in order of the names.
func (n *namedSamples) collisions(label string) []string {
	var collisions []string
	for _, name := range slices.Sorted(maps.Keys(n.values)) {
		if values := slices.Sorted(maps.Keys(n.values[name])); len(values) > 1 {
			collisions = append(collisions, fmt.Sprintf("%d values of the label %s, such as %q and %q, give the name %s", len(values), label, values[0], values[1], name))
		}
	}
	return collisions
}

// NameProblems describes what is wrong with the names of a score with nameFrom.
func (q *QueryReport) NameProblems() []string {
	var problems []string
	if n := len(q.Collisions); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(", and %d more names collide", n-1)
		}
		problems = append(problems, fmt.Sprintf("has colliding names: %s%s; such a score is not published after its keep time: change one of the values with label_replace, or select one in the query", q.Collisions[0], more))
	}
	if n := len(q.LeftOut); n > 0 {
		problems = append(problems, fmt.Sprintf("has %d names more than nameFrom.limit, the first of which is %s: raise the limit, or select fewer values in the query", n, q.LeftOut[0]))
	}
	return problems
}

// knownNames returns the names of the previous round that a cluster uses, and those that a
// cluster may still use. isSilent reports the clusters about which the response says nothing.
//
// Scenario: the only cluster with A100s loses its endpoint. Its score ends with its keep time, but
// its name stays for 24 hours: a Placement that reads a name which no cluster has gets 0.
func knownNames(base string, previous *score.Result, now time.Time, isSilent func(cluster string) bool) (inUse, maybeInUse []string) {
	if previous == nil {
		return nil, nil
	}
	for _, name := range score.NamesFrom(base, previous.Names) {
		switch {
		case previous.IsInUse(name):
			inUse = append(inUse, name)
		case previous.MayBeInUse(name, now, isSilent):
			maybeInUse = append(maybeInUse, name)
		}
	}
	return inUse, maybeInUse
}

// chooseNames returns at most limit names in ascending order: names in use come first, then
// those of the response, then those that may be in use. leftOut are names of the response
// beyond the limit.
func chooseNames(inUse, found, maybeInUse []string, limit int) (chosen, leftOut []string) {
	chosen = slices.Sorted(slices.Values(inUse))
	chosen = chosen[:min(limit, len(chosen))]
	for _, name := range found {
		switch {
		case slices.Contains(chosen, name):
		case len(chosen) < limit:
			chosen = append(chosen, name)
		default:
			leftOut = append(leftOut, name)
		}
	}
	for _, name := range maybeInUse {
		if len(chosen) < limit && !slices.Contains(chosen, name) {
			chosen = append(chosen, name)
		}
	}
	slices.Sort(chosen)
	return chosen, leftOut
}
