// Package report shows what objects in mode Shadow would have done: the command report.
package report

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/shadow"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

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
			return out.Print(a.Out, "GateReport", r, func(w io.Writer) { r.WriteRows(w, out.IsWide(), a.Now()) })
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

func read(ctx context.Context, a *command.App, name string) (*shadow.GateReport, error) {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, err
	}
	g := &v1alpha1.PlacementGate{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, g); err != nil {
		return nil, hubclient.Reading("PlacementGate "+name, err)
	}
	return shadow.ReportOf(g)
}
