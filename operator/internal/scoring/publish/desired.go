package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"

	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// DataFresh is the type of the condition on each AddOnPlacementScore.
const DataFresh = "DataFresh"

// Reasons of the condition DataFresh.
const (
	ReasonFresh   = "Fresh"   // every score has a fresh value
	ReasonKept    = "Kept"    // some last scores are kept
	ReasonStale   = "Stale"   // the keep time has ended, and samples are too old
	ReasonMissing = "Missing" // the keep time has ended, and there is no usable sample
)

// Desired is the status that an AddOnPlacementScore should have.
type Desired struct {
	Cluster string
	// Scores are sorted by name.
	Scores []clusterv1alpha1.AddOnPlacementScoreItem
	// ValidUntil is truncated to seconds, as the API stores it.
	ValidUntil time.Time
	// Conditions are DataFresh and one condition for each score that is not Scored. A
	// LastTransitionTime that is zero means the time at which the status changes.
	Conditions []metav1.Condition
	// Series are the numbers of series behind complete responses, by the key of the query.
	// They are stored in SeriesAnnotation. If Series is empty, the annotation stays.
	Series map[string]int64
}

// Desire returns the desired status for each cluster of a result. All scores are valid for
// the given duration. The operator ends keep times, and validUntil does not: it would expire the
// fresh scores of the same object, and OCM reads expired scores as 0, not as -100.
func Desire(r *score.Result, hasTotal bool, valid time.Duration) []Desired {
	all := make([]Desired, len(r.Clusters))
	for i, cluster := range r.Clusters {
		row := r.Row(i)
		all[i] = Desired{
			Cluster:    cluster,
			Scores:     scoreItems(r.Names, row),
			ValidUntil: r.Time.Time().Add(valid).Truncate(time.Second),
		}
		parts := row
		if hasTotal {
			parts = row[:len(row)-1]
		}
		all[i].Conditions = append([]metav1.Condition{decideDataFresh(r.Names, parts)}, scoreConditions(r.Names, row, hasTotal)...)
	}
	return all
}

func scoreItems(names []string, row []score.Cell) []clusterv1alpha1.AddOnPlacementScoreItem {
	items := make([]clusterv1alpha1.AddOnPlacementScoreItem, 0, len(row))
	for i := range row {
		if row[i].State != score.Omitted {
			items = append(items, clusterv1alpha1.AddOnPlacementScoreItem{Name: names[i], Value: row[i].Value})
		}
	}
	slices.SortFunc(items, func(a, b clusterv1alpha1.AddOnPlacementScoreItem) int { return cmp.Compare(a.Name, b.Name) })
	return items
}

// decideDataFresh decides the condition DataFresh of one cluster. The message contains
// times instead of ages: it changes only together with the state, and so causes no
// additional writes. A restarted operator reads the reason Stale: the cluster had values.
func decideDataFresh(names []string, parts []score.Cell) metav1.Condition {
	reason := ReasonFresh
	var lines []string
	for i := range parts {
		c := &parts[i]
		if c.Outcome.IsExpected() {
			continue
		}
		reason = worseReason(reason, reasonOf(c))
		line := fmt.Sprintf("%s: %s since %s", names[i], c.Outcome, formatTime(c.Since.Time()))
		if !c.KeptUntil.IsZero() {
			line += ", kept until " + formatTime(c.KeptUntil.Time())
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return metav1.Condition{Type: DataFresh, Status: metav1.ConditionTrue, Reason: reason, Message: "every score has a fresh value"}
	}
	return metav1.Condition{Type: DataFresh, Status: metav1.ConditionFalse, Reason: reason, Message: truncate(strings.Join(lines, "; "))}
}

func reasonOf(c *score.Cell) string {
	switch {
	case !c.KeptUntil.IsZero():
		return ReasonKept
	case c.Outcome == score.Stale:
		return ReasonStale
	default:
		return ReasonMissing
	}
}

// severity orders the reasons from the best to the worst.
var severity = []string{ReasonFresh, ReasonKept, ReasonMissing, ReasonStale}

func worseReason(a, b string) string {
	if slices.Index(severity, a) > slices.Index(severity, b) {
		return a
	}
	return b
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// truncate limits a condition's message to 1024 bytes.
func truncate(s string) string {
	if len(s) > 1024 {
		return s[:1021] + "..."
	}
	return s
}
