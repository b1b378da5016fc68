// Package report shows what objects in mode Shadow would have done: the command report.
package report

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// GateReport is the output of report gate -o json.
type GateReport struct {
	Gate string        `json:"gate"`
	Mode v1alpha1.Mode `json:"mode"`
	// Passed is the number of workloads of the report.
	Passed int64 `json:"passed"`
	// Summary is the report in a few sentences.
	Summary string `json:"summary"`
	v1alpha1.GateShadow
}

// New returns the command report.
func New(a *command.App) *cobra.Command {
	cmd := &cobra.Command{Use: "report", Short: "Show what a gate in mode Shadow would have done", Args: command.ExactArgs(0, "the command gate"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newGate(a))
	return cmd
}

func newGate(a *command.App) *cobra.Command {
	var out command.OutputFlag
	cmd := &cobra.Command{
		Use:   "gate NAME",
		Short: "Compare what a gate in mode Shadow would have done with what happened",
		Long: `Compare what a gate in mode Shadow would have done with what happened.

A gate in mode Shadow lets every workload pass, and decides all the same. The report counts
workloads whose pods have been ready, or that have ended, by what the gate would have done.
WAIT is for how long it would have kept them waiting, in all. A workload HUNG if its pods
were not ready 5 minutes after a cluster admitted it; DEVICE-HOURS are the devices of these
workloads times the hours until then. Then follow the latest workloads for which the gate
would have made a difference, and those that hang now, at most 20 of each without -o wide.

The report begins anew with each change of the gate's spec. A gate in mode Enforce keeps its
last report.`,
		Example: "  kubectl plimsoll report gate fleet\n  kubectl plimsoll report gate fleet -o json",
		Args:    command.ExactArgs(1, "the name of a PlacementGate"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			r, err := read(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			return out.Print(a.Out, "GateReport", r, func(w io.Writer) { r.write(w, out.IsWide(), a.Now()) })
		},
		ValidArgsFunction: hubclient.Complete(a, func(ctx context.Context, c client.Client, _ string) (names []string, err error) {
			gates := &v1alpha1.PlacementGateList{}
			err = c.List(ctx, gates)
			for i := range gates.Items {
				names = append(names, gates.Items[i].Name)
			}
			return names, err
		}),
	}
	out.Add(cmd)
	return cmd
}

func read(ctx context.Context, a *command.App, name string) (*GateReport, error) {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, err
	}
	g := &v1alpha1.PlacementGate{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, g); err != nil {
		return nil, hubclient.Reading("PlacementGate "+name, err)
	}
	if g.Status.Shadow == nil && g.Spec.Mode == v1alpha1.ModeShadow {
		return nil, fmt.Errorf("PlacementGate %s has no report yet: the operator has not read it since its mode is Shadow", name)
	}
	if g.Status.Shadow == nil {
		return nil, fmt.Errorf("PlacementGate %s has no report: set spec.mode to Shadow, and look again when workloads have passed", name)
	}
	r := &GateReport{Gate: name, Mode: g.Spec.Mode, GateShadow: *g.Status.Shadow}
	for _, o := range r.Outcomes {
		r.Passed += o.Workloads
	}
	r.Summary = r.summarize()
	return r, nil
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

func (r *GateReport) write(w io.Writer, isWide bool, now time.Time) {
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
