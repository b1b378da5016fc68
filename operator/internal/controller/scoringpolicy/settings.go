package scoringpolicy

import (
	"cmp"
	"fmt"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// settingsWarnings returns warnings about settings that probably have an unwanted effect. OCM
// reads the score of a cluster that the policy does not select as 0: in the range Full, that
// is better than the score of a busy cluster.
func settingsWarnings(spec *v1alpha1.ScoringPolicySpec, clusters, selected int) []string {
	if selected >= clusters || spec.Mode == v1alpha1.ModeShadow {
		return nil
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
		return nil
	}
	return []string{fmt.Sprintf("OCM reads the scores of the %d ManagedClusters that clusterSelector leaves out as 0, which is better than a negative score of %s: use the range ZeroTo100, or the same labels in the Placement",
		clusters-selected, strings.Join(full[:min(len(full), maxListed)], ", "))}
}
