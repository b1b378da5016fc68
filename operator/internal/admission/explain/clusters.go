package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// maxReservations is the number of reservations that the table shows. JSON has all.
const maxReservations = 10

// writeClusters writes the table of candidate clusters.
func (r *Report) writeClusters(w io.Writer, now time.Time, wide bool) {
	format.Row(w)
	columns := []string{"CLUSTER", "STATUS", "ROOM", "SCORES", "WHY"}
	if wide {
		columns = []string{"CLUSTER", "STATUS", "ROOM", "FIT", "RESERVED", "CREDITED", "NET", "SAMPLES", "CONDITIONS", "SCORES", "WHY"}
	}
	// Most gates have no preference, and most clusters start what they admit.
	hasPreference := wide && slices.ContainsFunc(r.Clusters, func(c gate.ClusterExplanation) bool { return c.Preference.Known })
	hasUnstarted := wide && slices.ContainsFunc(r.Clusters, func(c gate.ClusterExplanation) bool { return c.Unstarted > 0 })
	if hasUnstarted {
		columns = slices.Insert(columns, slices.Index(columns, "CREDITED"), "UNSTARTED")
	}
	if hasPreference {
		columns = slices.Insert(columns, len(columns)-2, "PREFERENCE")
	}
	format.Row(w, columns...)
	for _, c := range r.sortedClusters() {
		cells := []string{c.Cluster, r.clusterStatus(c), formatNumber(c.Room)}
		if wide {
			cells = append(cells, formatNumber(c.Fit), unlessUnknown(c, fmt.Sprint(c.Promised)))
			if hasUnstarted {
				cells = append(cells, unlessUnknown(c, fmt.Sprint(c.Unstarted)))
			}
			cells = append(cells, unlessUnknown(c, fmt.Sprint(c.Credited)), unlessUnknown(c, fmt.Sprintf("%g", c.Net)),
				formatAgeSeconds(c.Age), r.formatRequirements(c, now))
		}
		if hasPreference {
			cells = append(cells, formatNumber(c.Preference))
		}
		format.Row(w, append(cells, Scores(c.Scores, now, wide), c.Why)...)
	}
}

// writeReservations writes the ledger entries of all candidates, the oldest first.
func (r *Report) writeReservations(w io.Writer, now time.Time) {
	var entries []ledger.Entry
	for _, c := range r.Clusters {
		entries = append(entries, c.Ledger...)
	}
	if len(entries) == 0 {
		return
	}
	slices.SortFunc(entries, func(a, b ledger.Entry) int {
		return cmp.Or(a.DebitedAt.Compare(b.DebitedAt), strings.Compare(a.Workload, b.Workload), strings.Compare(a.Cluster, b.Cluster))
	})
	format.Row(w)
	format.Row(w, "RESERVED FOR", "CLUSTER", "DEVICES", "SINCE", "ADMITTED")
	for _, e := range entries[:min(len(entries), maxReservations)] {
		admitted := "not yet"
		switch {
		case !e.EndedAt.IsZero():
			admitted = "ended " + format.Age(now, e.EndedAt) + " ago"
		case !e.AdmittedAt.IsZero():
			admitted = format.Age(now, e.AdmittedAt) + " ago"
		}
		format.Row(w, e.Workload, e.Cluster, fmt.Sprint(e.Devices()), format.Age(now, e.DebitedAt), admitted)
	}
	if more := len(entries) - maxReservations; more > 0 {
		format.Row(w, fmt.Sprintf("and %d more (-o json shows all)", more))
	}
}

// sortedClusters returns the clusters in the order in which the operator would nominate
// them, then by name.
func (r *Report) sortedClusters() []gate.ClusterExplanation {
	rank := func(c gate.ClusterExplanation) int {
		if i := slices.Index(r.Decision.Order, c.Cluster); i >= 0 {
			return i
		}
		return len(r.Decision.Order)
	}
	return slices.SortedStableFunc(slices.Values(r.Clusters), func(a, b gate.ClusterExplanation) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Cluster, b.Cluster))
	})
}

// clusterStatus returns the role of a cluster for the workload.
func (r *Report) clusterStatus(c gate.ClusterExplanation) string {
	switch {
	case c.Cluster == r.Cluster:
		return "placed"
	case slices.Contains(r.Nominated, c.Cluster):
		return "nominated"
	case c.Rejection != gate.RejectNone:
		return "rejected"
	case slices.Contains(r.Dispatch.Sent(), c.Cluster):
		return "nominated before"
	case len(r.Decision.Order) > 0 && r.Decision.Order[0] == c.Cluster:
		return "best"
	}
	return "candidate"
}

// unlessUnknown returns text, or "?" if the hub's objects do not contain the numbers of
// the cluster.
func unlessUnknown(c gate.ClusterExplanation, text string) string {
	if !c.Fit.Known {
		return format.Unknown
	}
	return text
}

// formatRequirements lists the results of the gate's requirements for a cluster.
func (r *Report) formatRequirements(c gate.ClusterExplanation, now time.Time) string {
	if r.From == FromObjects {
		return format.Unknown
	}
	var requirements []string
	for _, requirement := range c.Requirements {
		requirements = append(requirements, formatRequirement(requirement, now))
	}
	return cmp.Or(strings.Join(requirements, " "), "-")
}

// Scores lists policy/score=value with the age of each score, and marks scores that
// have expired or whose data is not fresh. If wide is true, the other scores show how long
// they are valid.
func Scores(scores map[string]gate.Score, now time.Time, wide bool) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(scores)) {
		s := scores[key]
		var notes []string
		if s.State != "" {
			notes = append(notes, s.State)
		}
		if !s.Written.IsZero() {
			notes = append(notes, format.Age(now, s.Written)+" old")
		}
		switch {
		case s.ValidUntil.IsZero():
		case s.ValidUntil.Before(now):
			notes = append(notes, fmt.Sprintf("expired %s ago", format.Age(now, s.ValidUntil)))
		case wide:
			notes = append(notes, "valid for "+format.Duration(s.ValidUntil.Sub(now)))
		}
		text := fmt.Sprintf("%s=%d", key, s.Value)
		if len(notes) > 0 {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// formatAgeSeconds returns an age in seconds. Negative ages are unknown.
func formatAgeSeconds(seconds float64) string {
	if seconds < 0 {
		return format.Unknown
	}
	return format.Duration(time.Duration(seconds*float64(time.Second))) + " old"
}

func formatNumber(n gate.Number) string {
	if !n.Known {
		return format.Unknown
	}
	return fmt.Sprintf("%g", n.Value)
}
