package explain

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// writeSummary writes one row per property of the workload. Empty properties are left out.
func (r *Report) writeSummary(w io.Writer, paint format.Painter, now time.Time) {
	row := func(name, value string) {
		if value != "" {
			format.Row(w, name+":", value)
		}
	}
	row("Workload", r.Workload)
	row("Owner", r.Owner)
	row("Queue", r.Queue)
	row("Gate", r.Gate)
	row("Requests", formatRequests(r.Facts))
	row("Cluster", paint.Good(r.Cluster))
	if r.Waiting {
		row("Waits for", paint.Warning(r.WaitsFor))
	} else {
		row("Waits for", paint.Good(r.WaitsFor))
	}
	row("Next", r.Next)
	for _, c := range r.Checks {
		text := c.Name + " " + paint.State(c.State)
		if c.Message != "" && c.Message != r.WaitsFor {
			text += ": " + c.Message
		}
		row("Check", text)
	}
	for _, c := range r.Requirements {
		row("Requirement", formatRequirement(c, now))
	}
	for _, name := range r.SkippedRequirements {
		row("Requirement", name+" does not apply: the job has no profile for it yet")
	}
	row("Decided after", r.Preceding)
	row("Holds", formatHold(r.Decision.Hold, now))
	row("Nominations", formatDispatch(r.Dispatch, now))
	row("Mode Shadow", formatPassed(r.Dispatch.Passed))
	for _, p := range r.Dispatch.Avoided(now) {
		row("Avoids", formatAvoidance(p))
	}
	row("Reclaimed", formatReclaim(r.Dispatch.Reclaimed, now))
	row("Problem", paint.Bad(r.Problem))
	for _, note := range r.NotShown {
		row("Not shown", note)
	}
}

// formatHold describes the cluster that the gate holds for the workload; "" = none.
func formatHold(h *ledger.Hold, now time.Time) string {
	if h == nil {
		return ""
	}
	text := h.Cluster + " for " + format.Age(now, h.Since)
	if h.Shadow {
		text += " (shadow: without effect)"
	}
	if !h.StartsBy.IsZero() {
		text += ", starts by " + h.StartsBy.UTC().Format(time.TimeOnly+" UTC")
	}
	return text
}

// formatRequests lists the requested devices: 2 pods of 8 NVIDIA-H100-80GB-HBM3, claim nic
// (not measured).
func formatRequests(f shape.Facts) string {
	var requests []string
	for _, p := range f.PodSets {
		text := fmt.Sprintf("%s of %d %s", format.Plural(int(p.Pods), "pod"), p.DevicesPerPod, cmp.Or(p.Model, p.Resource))
		if needs := p.BesideDevices(); needs != "" {
			text += " with " + needs
		}
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

// formatProfile lists what earlier runs used: earlier runs: 40960Mi per device, 10m, 30% utilization.
func formatProfile(p *shape.Profile) string {
	var known []string
	if p.MemoryPeak > 0 {
		known = append(known, format.Memory(p.MemoryPeak)+" per device")
	}
	if p.Duration > 0 {
		known = append(known, format.Seconds(p.Duration))
	}
	if p.UtilizationPercent > 0 {
		known = append(known, fmt.Sprintf("%d%% utilization", p.UtilizationPercent))
	}
	if p.BestModel != "" {
		known = append(known, "fastest on "+p.BestModel)
	}
	return "earlier runs: " + strings.Join(known, ", ")
}

// formatDispatch describes the current attempt, or returns "" before the first one.
func formatDispatch(d dispatch.Record, now time.Time) string {
	if d.Attempt == 0 {
		return ""
	}
	text := fmt.Sprintf("attempt %d, %s ago, to %s", d.Attempt, format.Age(now, d.NominatedAt), strings.Join(d.Nominated, ", "))
	if !d.WidenedAt.IsZero() {
		text += fmt.Sprintf(", widened %s ago", format.Age(now, d.WidenedAt))
	}
	if d.Reason != "" {
		text += fmt.Sprintf(" (%s)", d.Reason)
	}
	return text
}

// formatPassed says what a gate in mode Shadow would have done: the gate would send it to cluster1 since 12:00:00 UTC.
func formatPassed(p *dispatch.Passed) string {
	if p == nil {
		return ""
	}
	text := "the gate would have kept it waiting: " + p.Message
	if p.Cluster != "" {
		text = "the gate would have sent it to " + p.Cluster
	}
	if p.Cluster != "" && p.HasWaited() {
		text += " after " + format.Duration(p.ChosenAt.Sub(p.At)) + ": " + p.Message
	}
	if p.Outcome != "" {
		text += " (" + string(p.Outcome) + ")"
	}
	return text
}

// formatAvoidance describes a cluster that the workload avoids.
func formatAvoidance(p dispatch.Preference) string {
	text := fmt.Sprintf("%s until %s", p.Cluster, p.Until.UTC().Format(time.TimeOnly+" UTC"))
	if p.IfOther {
		text += ", while another cluster could hold the workload"
	}
	if p.Why != "" {
		text += ": it " + p.Why
	}
	return text
}

// formatReclaim describes the last reclaim, or returns "" if there was none.
func formatReclaim(r *dispatch.Reclaim, now time.Time) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s ago, by ReclaimPolicy %s: %s", format.Age(now, r.At), r.Policy, r.Cause)
}

// formatRequirement returns the result of a requirement with its age. Zero, an unknown result
// and an old result do not meet the requirement.
func formatRequirement(c gate.RequirementResult, now time.Time) string {
	text := c.Name + "=" + formatNumber(c.Number)
	switch {
	case c.EvaluatedAt.IsZero():
		return text + " (no result)"
	case c.Partial:
		return text + " (partial result)"
	}
	return text + " (" + format.Age(now, c.EvaluatedAt) + " old)"
}
