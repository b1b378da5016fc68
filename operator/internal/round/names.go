package round

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// readNames returns the report of a score with nameFrom, and the input of each of its scores
// for each cluster.
func (results queryResults) readNames(s *v1alpha1.ScoreSpec, clusters *clustermap.Mapping, previous *score.Result, matched map[string]bool) (QueryReport, [][]score.Input) {
	r := results[s.Query]
	report := QueryReport{
		Query: s.Query, Duration: r.response.Duration, Series: len(r.response.Samples), Problems: r.problems, Err: r.err, Infos: r.response.Infos,
	}
	byName := map[string][]query.Sample{}
	conclusive := r.problems == nil && r.err == nil && !r.response.Partial && len(r.response.Failed) == 0
	if r.problems == nil && r.err == nil {
		byName, report.Warnings = samplesByName(s, r.response.Samples)
	}
	limit := int(cmp.Or(s.NameFrom.Limit, 16))
	report.Names, report.LeftOut = chooseNames(knownNames(s.Name, previous, conclusive && len(byName) > 0), slices.Sorted(maps.Keys(byName)), limit)
	if len(report.LeftOut) > 0 {
		report.Warnings = append(report.Warnings, "the query "+report.TooManyNames())
	}
	columns := make([][]score.Input, len(report.Names))
	for i, name := range report.Names {
		switch {
		case r.problems != nil:
			columns[i] = repeatOutcome(score.Invalid, clusters.Len())
		case r.err != nil:
			columns[i] = repeatOutcome(score.Failed, clusters.Len())
		default:
			columns[i] = inputsOf(clusters.Group(byName[name]))
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

// samplesByName groups the samples by the name of their score.
func samplesByName(s *v1alpha1.ScoreSpec, samples []query.Sample) (byName map[string][]query.Sample, warnings []string) {
	byName = map[string][]query.Sample{}
	values := map[string]string{} // the first value of the label, by name
	unnamed, firstUnnamed, colliding := 0, "", ""
	for _, sample := range samples {
		value := sample.Labels[s.NameFrom.Label]
		name, ok := score.NameOf(s.Name, value)
		if !ok {
			if unnamed++; unnamed == 1 {
				firstUnnamed = value
			}
			continue
		}
		if first, known := values[name]; !known {
			values[name] = value
		} else if first != value && colliding == "" {
			colliding = fmt.Sprintf("the values %q and %q of the label %s give the same score %s", first, value, s.NameFrom.Label, name)
		}
		byName[name] = append(byName[name], sample)
	}
	if unnamed > 0 {
		warnings = append(warnings, fmt.Sprintf("%d series give no score because their label %s is empty or too long, such as %q", unnamed, s.NameFrom.Label, firstUnnamed))
	}
	if colliding != "" {
		warnings = append(warnings, colliding)
	}
	return byName, warnings
}

// knownNames returns the names of a score with nameFrom in the previous round. If the response
// is complete, names that no cluster uses any more are left out. Without a response, nothing is
// known about a name, and it stays.
func knownNames(base string, previous *score.Result, complete bool) []string {
	if previous == nil {
		return nil
	}
	names := score.NamesFrom(base, previous.Names)
	if complete {
		names = slices.DeleteFunc(names, func(name string) bool { return !previous.IsInUse(name) })
	}
	slices.Sort(names)
	return names
}

// chooseNames returns at most limit names in ascending order: known ones first, then new ones.
func chooseNames(known, found []string, limit int) (chosen, leftOut []string) {
	all := slices.Clone(known)
	for _, name := range found {
		if !slices.Contains(known, name) {
			all = append(all, name)
		}
	}
	chosen, leftOut = all[:min(limit, len(all))], all[min(limit, len(all)):]
	slices.Sort(chosen)
	return chosen, leftOut
}
