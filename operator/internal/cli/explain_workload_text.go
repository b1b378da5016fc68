package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// maxReservations is the number of reservations that the table shows. JSON has all.
const maxReservations = 10

// WriteExplanation writes the operator's explanation of a waiting workload as `explain
// workload` does.
func WriteExplanation(out io.Writer, e gate.Explanation, now time.Time) error {
	a := &app{now: func() time.Time { return now }, paint: painterFor(out)}
	report := &workloadReport{Explanation: e, Waiting: true, From: fromOperator}
	return (&outputFlag{}).print(out, report, report.tableWriter(a, false))
}

// tableWriter returns a function that writes the report as text.
func (r *workloadReport) tableWriter(a *app, wide bool) func(io.Writer) {
	return func(w io.Writer) {
		r.writeSummary(w, a)
		if len(r.Clusters) == 0 {
			return
		}
		r.writeClusters(w, a.now(), wide)
		r.writeReservations(w, a.now())
	}
}

// writeSummary writes one row per property of the workload. Empty properties are left out.
func (r *workloadReport) writeSummary(w io.Writer, a *app) {
	row := func(name, value string) {
		if value != "" {
			writeRow(w, name+":", value)
		}
	}
	row("Workload", r.Workload)
	row("Owner", r.Owner)
	row("Queue", r.Queue)
	row("Gate", r.Gate)
	row("Requests", formatRequests(r.Facts))
	row("Cluster", a.paint.good(r.Cluster))
	if r.Waiting {
		row("Waits for", a.paint.warning(r.WaitsFor))
	} else {
		row("Waits for", a.paint.good(r.WaitsFor))
	}
	for _, c := range r.Checks {
		text := c.Name + " " + a.paint.state(c.State)
		if c.Message != "" {
			text += ": " + c.Message
		}
		row("Check", text)
	}
	for _, c := range r.Conditions {
		row("Condition", formatCondition(c, a.now()))
	}
	for _, name := range r.SkippedConditions {
		row("Condition", name+" does not apply: the job has no profile for it yet")
	}
	row("Decided after", r.Preceding)
	row("Holds", formatHold(r.Decision.Hold, a.now()))
	row("Nominations", formatDispatch(r.Dispatch, a.now()))
	row("Reclaimed", formatReclaim(r.Dispatch.Reclaimed, a.now()))
	row("Problem", a.paint.bad(r.Problem))
	for _, note := range r.NotShown {
		row("Not shown", note)
	}
}

// formatHold describes the cluster that the gate holds for the workload; "" = none.
func formatHold(h *ledger.Hold, now time.Time) string {
	if h == nil {
		return ""
	}
	text := h.Cluster + " for " + formatAge(now, h.Since)
	if h.Shadow {
		text += " (shadow: without effect)"
	}
	if !h.StartsBy.IsZero() {
		text += ", starts by " + h.StartsBy.UTC().Format(time.TimeOnly+" UTC")
	}
	return text
}

// writeClusters writes the table of candidate clusters.
func (r *workloadReport) writeClusters(w io.Writer, now time.Time, wide bool) {
	writeRow(w)
	columns := []string{"CLUSTER", "STATUS", "ROOM", "SCORES", "WHY"}
	if wide {
		columns = []string{"CLUSTER", "STATUS", "ROOM", "FIT", "RESERVED", "CREDITED", "NET", "SAMPLES", "CONDITIONS", "SCORES", "WHY"}
	}
	writeRow(w, columns...)
	for _, c := range r.sortedClusters() {
		cells := []string{c.Cluster, r.clusterStatus(c), formatNumber(c.Room)}
		if wide {
			cells = append(cells, formatNumber(c.Fit),
				unlessUnknown(c, fmt.Sprint(c.Promised)), unlessUnknown(c, fmt.Sprint(c.Credited)), unlessUnknown(c, fmt.Sprintf("%g", c.Net)),
				formatAgeSeconds(c.Age), r.formatConditions(c, now))
		}
		writeRow(w, append(cells, formatScores(c.Scores, now, wide), c.Why)...)
	}
}

// writeReservations writes the ledger entries of all candidates, the oldest first.
func (r *workloadReport) writeReservations(w io.Writer, now time.Time) {
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
	writeRow(w)
	writeRow(w, "RESERVED FOR", "CLUSTER", "DEVICES", "SINCE", "ADMITTED")
	for _, e := range entries[:min(len(entries), maxReservations)] {
		admitted := "not yet"
		switch {
		case !e.EndedAt.IsZero():
			admitted = "ended " + formatAge(now, e.EndedAt) + " ago"
		case !e.AdmittedAt.IsZero():
			admitted = formatAge(now, e.AdmittedAt) + " ago"
		}
		writeRow(w, e.Workload, e.Cluster, fmt.Sprint(e.Devices()), formatAge(now, e.DebitedAt), admitted)
	}
	if more := len(entries) - maxReservations; more > 0 {
		writeRow(w, fmt.Sprintf("and %d more (-o json shows all)", more))
	}
}

// sortedClusters returns the clusters in the order in which the operator would nominate
// them, then by name.
func (r *workloadReport) sortedClusters() []gate.ClusterExplanation {
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
func (r *workloadReport) clusterStatus(c gate.ClusterExplanation) string {
	switch {
	case c.Cluster == r.Cluster:
		return "placed"
	case slices.Contains(r.Nominated, c.Cluster):
		return "nominated"
	case c.Rejection != gate.RejectNone:
		return "rejected"
	case slices.Contains(r.Dispatch.EverNominated, c.Cluster):
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
		return unknownValue
	}
	return text
}

// formatRequests lists the requested devices: 2 pods of 8 NVIDIA-H100-80GB-HBM3, claim nic
// (not measured).
func formatRequests(f shape.Facts) string {
	var requests []string
	for _, p := range f.PodSets {
		text := fmt.Sprintf("%s of %d %s", pluralize(int(p.Pods), "pod"), p.DevicesPerPod, cmp.Or(p.Model, p.Resource))
		if p.Share != nil {
			text += " with " + p.Share.String()
		}
		if p.Profile != nil {
			text += " (" + formatProfile(p.Profile) + ")"
		}
		requests = append(requests, text)
	}
	for _, name := range f.Unmeasured {
		requests = append(requests, name+" (not measured)")
	}
	return strings.Join(requests, ", ")
}

// formatProfile lists what earlier runs used: earlier runs: 40960Mi per device, 10m.
func formatProfile(p *shape.Profile) string {
	var known []string
	if p.MemoryPeak > 0 {
		known = append(known, formatMemory(p.MemoryPeak)+" per device")
	}
	if p.Duration > 0 {
		known = append(known, formatSeconds(p.Duration))
	}
	return "earlier runs: " + strings.Join(known, ", ")
}

// formatDispatch describes the current attempt, or returns "" before the first one.
func formatDispatch(d dispatch.Record, now time.Time) string {
	if d.Attempt == 0 {
		return ""
	}
	text := fmt.Sprintf("attempt %d, %s ago, to %s", d.Attempt, formatAge(now, d.NominatedAt), strings.Join(d.Nominated, ", "))
	if !d.WidenedAt.IsZero() {
		text += fmt.Sprintf(", widened %s ago", formatAge(now, d.WidenedAt))
	}
	if d.Reason != "" {
		text += fmt.Sprintf(" (%s)", d.Reason)
	}
	return text
}

// formatReclaim describes the last reclaim, or returns "" if there was none.
func formatReclaim(r *dispatch.Reclaim, now time.Time) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s ago, by ReclaimPolicy %s: %s", formatAge(now, r.At), r.Policy, r.Cause)
}

// formatConditions lists the results of the gate's conditions for a cluster.
func (r *workloadReport) formatConditions(c gate.ClusterExplanation, now time.Time) string {
	if r.From == fromObjects {
		return unknownValue
	}
	var conditions []string
	for _, condition := range c.Conditions {
		conditions = append(conditions, formatCondition(condition, now))
	}
	return cmp.Or(strings.Join(conditions, " "), "-")
}

// formatCondition returns the result of a condition with its age. Zero, an unknown result
// and an old result do not meet the condition.
func formatCondition(c gate.ConditionResult, now time.Time) string {
	text := c.Name + "=" + formatNumber(c.Number)
	switch {
	case c.EvaluatedAt.IsZero():
		return text + " (no result)"
	case c.Partial:
		return text + " (partial result)"
	}
	return text + " (" + formatAge(now, c.EvaluatedAt) + " old)"
}

// formatScores lists policy/score=value with the age of each score, and marks scores that
// have expired or whose data is not fresh. If wide is true, the other scores show how long
// they are valid.
func formatScores(scores map[string]gate.Score, now time.Time, wide bool) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(scores)) {
		s := scores[key]
		var notes []string
		if s.State != "" {
			notes = append(notes, s.State)
		}
		if !s.Written.IsZero() {
			notes = append(notes, formatAge(now, s.Written)+" old")
		}
		switch {
		case s.ValidUntil.IsZero():
		case s.ValidUntil.Before(now):
			notes = append(notes, fmt.Sprintf("expired %s ago", formatAge(now, s.ValidUntil)))
		case wide:
			notes = append(notes, "valid for "+formatDuration(s.ValidUntil.Sub(now)))
		}
		text := fmt.Sprintf("%s=%d", key, s.Value)
		if len(notes) > 0 {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}
