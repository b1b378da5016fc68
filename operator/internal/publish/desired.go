package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"

	"plimsoll.dev/plimsoll/operator/internal/score"
)

// DataFresh is the type of the condition on each AddOnPlacementScore.
const DataFresh = "DataFresh"

// Reasons of DataFresh.
const (
	ReasonFresh   = "Fresh"
	ReasonHeld    = "Held"    // the last good values stand
	ReasonStale   = "Stale"   // the hold is over; samples are too old
	ReasonMissing = "Missing" // the hold is over; there is no usable sample
)

// Desired is what an AddOnPlacementScore's status shall say.
type Desired struct {
	Cluster    string
	Scores     []clusterv1alpha1.AddOnPlacementScoreItem // by name
	ValidUntil time.Time                                 // whole seconds
	Status     metav1.ConditionStatus
	Reason     string
	Message    string
}

// Want says what the result of a round asks for in each cluster, with scores valid
// for so long.
func Want(r *score.Result, hasTotal bool, valid time.Duration) []Desired {
	all := make([]Desired, len(r.Clusters))
	for i, cluster := range r.Clusters {
		row := r.Row(i)
		all[i] = Desired{
			Cluster:    cluster,
			Scores:     items(r.Names, row),
			ValidUntil: validUntil(row, r.Time.Time(), valid),
		}
		parts := row
		if hasTotal {
			parts = row[:len(row)-1]
		}
		all[i].Status, all[i].Reason, all[i].Message = freshness(r.Names, parts)
	}
	return all
}

func items(names []string, row []score.Cell) []clusterv1alpha1.AddOnPlacementScoreItem {
	out := make([]clusterv1alpha1.AddOnPlacementScoreItem, 0, len(row))
	for i := range row {
		if row[i].State != score.Omitted {
			out = append(out, clusterv1alpha1.AddOnPlacementScoreItem{Name: names[i], Value: row[i].Value})
		}
	}
	slices.SortFunc(out, func(a, b clusterv1alpha1.AddOnPlacementScoreItem) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// validUntil is now + valid, or the earliest end of a hold.
func validUntil(row []score.Cell, now time.Time, valid time.Duration) time.Time {
	until := now.Add(valid)
	for i := range row {
		if held := row[i].HeldUntil.Time(); !held.IsZero() && held.Before(until) {
			until = held
		}
	}
	return until.Truncate(time.Second)
}

// freshness sums up the scores of one cluster. The message changes only when the
// state does: it names times, not ages.
func freshness(names []string, parts []score.Cell) (metav1.ConditionStatus, string, string) {
	reason := ReasonFresh
	var lines []string
	for i := range parts {
		c := &parts[i]
		if c.Outcome == score.OK {
			continue
		}
		reason = worse(reason, reasonOf(c))
		line := fmt.Sprintf("%s: %s since %s", names[i], c.Outcome, stamp(c.Since.Time()))
		if !c.HeldUntil.IsZero() {
			line += ", held until " + stamp(c.HeldUntil.Time())
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return metav1.ConditionTrue, reason, "every score has a fresh value"
	}
	return metav1.ConditionFalse, reason, clip(strings.Join(lines, "; "))
}

func reasonOf(c *score.Cell) string {
	switch {
	case !c.HeldUntil.IsZero():
		return ReasonHeld
	case c.Outcome == score.Stale:
		return ReasonStale
	default:
		return ReasonMissing
	}
}

var severity = []string{ReasonFresh, ReasonHeld, ReasonMissing, ReasonStale}

func worse(a, b string) string {
	if slices.Index(severity, a) > slices.Index(severity, b) {
		return a
	}
	return b
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func clip(s string) string {
	if len(s) > 1024 {
		return s[:1021] + "..."
	}
	return s
}
