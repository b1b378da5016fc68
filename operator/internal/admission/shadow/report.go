package shadow

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// GateReport is the output of kubectl plimsoll report gate -o json.
type GateReport struct {
	// Gate is the name of the PlacementGate, and Mode its spec.mode.
	Gate string        `json:"gate"`
	Mode v1alpha1.Mode `json:"mode"`
	// Passed is the number of workloads of the report.
	Passed int64 `json:"passed"`
	// Summary is the report in a few sentences.
	Summary string `json:"summary"`
	// Reason is the dominant finding: None, HungElsewhere, Undecided, TooFew, WouldWait, WouldMove or AllAgree. Evidence
	// has its numbers, and Next is what to do.
	Reason   ReportReason `json:"reason"`
	Evidence string       `json:"evidence"`
	Next     string       `json:"next"`
	v1alpha1.GateShadow
}

// ReportOf returns the report of a gate. The error says why the gate has none.
func ReportOf(g *v1alpha1.PlacementGate) (*GateReport, error) {
	if g.Status.Shadow == nil && g.Spec.Mode == v1alpha1.ModeShadow {
		return nil, fmt.Errorf("PlacementGate %s has no report yet: the operator has not read it since its mode is Shadow", g.Name)
	}
	if g.Status.Shadow == nil {
		return nil, fmt.Errorf("PlacementGate %s has no report: set spec.mode to Shadow, and look again when workloads have passed", g.Name)
	}
	r := &GateReport{Gate: g.Name, Mode: g.Spec.Mode, GateShadow: *g.Status.Shadow}
	for _, o := range r.Outcomes {
		r.Passed += o.Workloads
	}
	r.Summary = r.summarize()
	r.Reason, r.Evidence, r.Next = r.conclude()
	return r, nil
}

// ReportReason is the dominant finding of a report.
type ReportReason string

// Reasons, in the order in which they apply.
const (
	// ReportNone: no workload has passed.
	ReportNone ReportReason = "None"
	// ReportHungElsewhere: workloads hung, and the gate would have sent them elsewhere or kept them waiting.
	ReportHungElsewhere ReportReason = "HungElsewhere"
	// ReportUndecided: the gate could not decide about workloads.
	ReportUndecided ReportReason = "Undecided"
	// ReportTooFew: fewer than fewWorkloads have passed.
	ReportTooFew ReportReason = "TooFew"
	// ReportWouldWait: the gate would have kept workloads waiting.
	ReportWouldWait ReportReason = "WouldWait"
	// ReportWouldMove: the gate would have sent workloads to other clusters.
	ReportWouldMove ReportReason = "WouldMove"
	// ReportAllAgree: the gate would have changed nothing.
	ReportAllAgree ReportReason = "AllAgree"
)

// fewWorkloads is the number of workloads below which a report without a difference that matters says little.
const fewWorkloads = 20

// conclude returns the dominant finding, its numbers and the next step.
func (r *GateReport) conclude() (reason ReportReason, evidence, next string) {
	of := map[v1alpha1.GateOutcome]int64{}
	var hung int64
	for _, o := range r.Outcomes {
		of[o.Outcome] = o.Workloads
		if o.Outcome != v1alpha1.OutcomeSameCluster && o.Outcome != v1alpha1.OutcomeUnplaced {
			hung += o.Hung
		}
	}
	passed := format.Plural(int(r.Passed), "workload")
	enforce := "kubectl patch placementgate " + r.Gate + ` --type merge -p '{"spec":{"mode":"Enforce"}}'`
	if r.Mode != v1alpha1.ModeShadow {
		enforce = "nothing: the gate decides"
	}
	look := "kubectl plimsoll report gate " + r.Gate + " -o wide"
	waited, moved := of[v1alpha1.OutcomeWait]+of[v1alpha1.OutcomeNever], of[v1alpha1.OutcomeOtherCluster]
	switch undecided := of[v1alpha1.OutcomeUndecided]; {
	case r.Passed == 0:
		return ReportNone, "no workload has started or ended", "submit jobs to the queues of the gate, and look again"
	case hung > 0:
		return ReportHungElsewhere, fmt.Sprintf("%d of %s hung where the gate would not have sent them", hung, passed), enforce
	case undecided > 0:
		return ReportUndecided, fmt.Sprintf("the gate could not decide about %d of %s", undecided, passed), "kubectl plimsoll doctor"
	case r.Passed < fewWorkloads:
		return ReportTooFew, fmt.Sprintf("only %s passed", passed), fmt.Sprintf("look again when %d have passed", fewWorkloads)
	case waited > 0:
		return ReportWouldWait, fmt.Sprintf("%d of %s would have waited, and none of them hung", waited, passed), look
	case moved > 0:
		return ReportWouldMove, fmt.Sprintf("%d of %s would have gone to another cluster, and none of them hung", moved, passed), look
	}
	return ReportAllAgree, fmt.Sprintf("the gate would have changed nothing for %s", passed), enforce
}

// words for outcomes in the table.
var words = map[v1alpha1.GateOutcome]string{
	v1alpha1.OutcomeSameCluster:  "same cluster",
	v1alpha1.OutcomeOtherCluster: "another cluster",
	v1alpha1.OutcomeWait:         "would have waited",
	v1alpha1.OutcomeNever:        "could never start",
	v1alpha1.OutcomeUndecided:    "not decided",
	v1alpha1.OutcomeUnplaced:     "ended unplaced",
}

// summarize states the report in two or three sentences.
func (r *GateReport) summarize() string {
	if r.Passed == 0 {
		return "No workload has started or ended since then."
	}
	of := map[v1alpha1.GateOutcome]int64{}
	var hung, hungSeconds, waited, waitSeconds int64
	for _, o := range r.Outcomes {
		of[o.Outcome] = o.Workloads
		switch o.Outcome {
		case v1alpha1.OutcomeSameCluster, v1alpha1.OutcomeUnplaced:
			continue // the gate would have changed nothing
		case v1alpha1.OutcomeOtherCluster:
		case v1alpha1.OutcomeWait, v1alpha1.OutcomeNever, v1alpha1.OutcomeUndecided:
			waited, waitSeconds = waited+o.Workloads, waitSeconds+o.WaitSeconds
		}
		hung, hungSeconds = hung+o.Hung, hungSeconds+o.HungDeviceSeconds
	}
	text := fmt.Sprintf("%d of %s went where the gate would have sent them.", of[v1alpha1.OutcomeSameCluster], format.Plural(int(r.Passed), "workload"))
	var changes []string
	if n := of[v1alpha1.OutcomeOtherCluster]; n > 0 {
		changes = append(changes, fmt.Sprintf("sent %d to another cluster", n))
	}
	if waited > 0 {
		changes = append(changes, fmt.Sprintf("kept %d waiting for %s in all", waited, format.Seconds(waitSeconds)))
	}
	if len(changes) > 0 {
		text += " It would have " + strings.Join(changes, ", and ") + "."
	}
	if hung > 0 {
		text += fmt.Sprintf(" %d of these hung where they went, for %s device-hours.", hung, hours(hungSeconds))
	}
	return text
}

func hours(deviceSeconds int64) string {
	return format.Decimal(format.RoundTenth(float64(deviceSeconds) / 3600))
}

// WriteRows writes the rows of the report to the writer that format.Table passes. If isWide is true, it lists all workloads.
func (r *GateReport) WriteRows(w io.Writer, isWide bool, now time.Time) {
	format.Row(w, "Gate:", r.Gate+", mode "+string(r.Mode))
	format.Row(w, "Report:", fmt.Sprintf("since %s (%s), of generation %d", format.Time(r.Since.Time), format.Age(now, r.Since.Time), r.Generation))
	format.Row(w, "Summary:", r.Summary)
	if len(r.Outcomes) > 0 {
		format.Row(w, "")
		format.Row(w, "OUTCOME", "WORKLOADS", "WAIT", "HUNG", "DEVICE-HOURS")
		for _, o := range r.Outcomes {
			format.Row(w, words[o.Outcome], fmt.Sprint(o.Workloads), format.Seconds(o.WaitSeconds), fmt.Sprint(o.Hung), hours(o.HungDeviceSeconds))
		}
	}
	latest := slices.Clone(r.Workloads)
	slices.Reverse(latest)
	writeWorkloads(w, "WORKLOAD", latest, isWide, now)
	writeWorkloads(w, "HANGS NOW", r.Hanging, isWide, now)
}

// maxRows is the number of workloads of a table without -o wide.
const maxRows = 20

func writeWorkloads(w io.Writer, title string, list []v1alpha1.ShadowWorkload, isWide bool, now time.Time) {
	if len(list) == 0 {
		return
	}
	if more := len(list) - maxRows; more > 0 && !isWide {
		list = list[:maxRows]
		defer format.Row(w, fmt.Sprintf("and %d more, with -o wide", more))
	}
	format.Row(w, "")
	format.Row(w, title, "PASSED", "DEVICES", "WENT TO", "WOULD BE ON", "WAIT", "HUNG", "WHY")
	for _, row := range list {
		format.Row(w, row.Workload, format.Age(now, row.Time.Time), fmt.Sprint(row.Devices), orNone(row.Cluster), orNone(row.Would), format.Seconds(row.WaitSeconds), format.Seconds(row.HungSeconds), row.Message)
	}
}

func orNone(cluster string) string {
	if cluster == "" {
		return "none"
	}
	return cluster
}
