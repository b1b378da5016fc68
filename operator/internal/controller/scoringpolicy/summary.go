package scoringpolicy

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// maxListed is the number of clusters that a message lists by name.
const maxListed = 5

// summary counts the clusters of a round by their worst score.
type summary struct {
	v1alpha1.RoundStatus
	// missing clusters lack a usable value in some score, and its keep time has ended. stale
	// of them have samples that are too old.
	missing, stale int
}

// summarize counts the clusters of a result.
func summarize(r *score.Result) summary {
	s := summary{}
	s.Clusters = int32(len(r.Clusters))
	for i := range r.Clusters {
		row := r.Row(i)
		switch worstState(row) {
		case score.Kept:
			s.Kept++
			continue
		case score.Worst:
			s.Worst++
		case score.Omitted:
			s.Omitted++
		case score.Fixed:
		default:
			if slices.ContainsFunc(row, isNone) {
				s.Absent++
			} else {
				s.Scored++
			}
			continue
		}
		s.missing++
		for j := range row {
			if row[j].Outcome == score.Stale {
				s.stale++
				break
			}
		}
	}
	return s
}

// severity orders the states of a score from the best to the worst.
var severity = map[score.State]int{score.Scored: 0, score.Kept: 1, score.Fixed: 2, score.Omitted: 3, score.Worst: 4}

func isNone(c score.Cell) bool { return c.Outcome == score.None }

// worstState returns the worst state of a cluster's scores. A veto counts as Scored if
// its value is fresh, and as Kept otherwise. A score that is absent as the policy accepts
// counts as Scored.
func worstState(row []score.Cell) score.State {
	worst := score.Scored
	for i := range row {
		state := row[i].State
		switch {
		case row[i].Outcome == score.None:
			state = score.Scored
		case state == score.Vetoed && row[i].Outcome == score.OK:
			state = score.Scored
		case state == score.Vetoed:
			state = score.Kept
		}
		if severity[state] > severity[worst] {
			worst = state
		}
	}
	return worst
}

// unfreshClusters lists the clusters that lack a fresh value.
func unfreshClusters(r *score.Result) string {
	var names []string
	for i, cluster := range r.Clusters {
		if worstState(r.Row(i)) != score.Scored {
			names = append(names, cluster)
		}
	}
	if n := len(names); n > maxListed {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:maxListed], ", "), n-maxListed)
	}
	return strings.Join(names, ", ")
}

// abbreviate lists at most maxListed names.
func abbreviate(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
}
