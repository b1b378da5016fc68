package scoringpolicy

import (
	"cmp"
	"fmt"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// settingsWarnings returns warnings about settings that probably have an unwanted effect.
func settingsWarnings(spec *v1alpha1.ScoringPolicySpec, clusters, selected int) []string {
	var warnings []string
	for _, warning := range []string{keepWarning(spec), rangeWarning(spec, clusters, selected)} {
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

// keepWarning warns of scores whose keep time can end before the round that needs it, or returns "".
func keepWarning(spec *v1alpha1.ScoringPolicySpec) string {
	var names []string
	reason := "" // the same for each score
	for i := range spec.Scores {
		if problem := score.KeepProblem(spec, &spec.Scores[i]); problem != "" {
			names, reason = append(names, spec.Scores[i].Name), problem
		}
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf("missing.keepLastSeconds of %s %s", abbreviate(names), reason)
}

// rangeWarning warns of negative scores beside clusters that the policy does not select, or
// returns "". OCM reads the score of such a cluster as 0: in the range Full, that is better
// than the score of a busy cluster.
func rangeWarning(spec *v1alpha1.ScoringPolicySpec, clusters, selected int) string {
	if selected >= clusters || spec.Mode == v1alpha1.ModeShadow {
		return ""
	}
	var full []string
	for i := range spec.Scores {
		if spec.Scores[i].Range == v1alpha1.RangeFull {
			full = append(full, spec.Scores[i].Name)
		}
	}
	if t := spec.Total; t != nil && t.Range == v1alpha1.RangeFull {
		full = append(full, cmp.Or(t.Name, "total"))
	}
	if full == nil {
		return ""
	}
	return fmt.Sprintf("OCM reads the scores of the %d ManagedClusters that clusterSelector leaves out as 0, which is better than a negative score of %s: use the range ZeroTo100, or the same labels in the Placement",
		clusters-selected, abbreviate(full))
}
