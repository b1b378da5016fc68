package explain

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

func newExplainWorkload(a *command.App) *cobra.Command {
	var out command.OutputFlag
	var operator explanation.OperatorFlags
	cmd := &cobra.Command{
		Use:   "workload NAME|KIND/NAME",
		Short: "Show where a workload is placed and why, or what the workload waits for",
		Long: `Show where a workload is placed and why, or what the workload waits for.

NAME is the name of a Workload. KIND/NAME is the job, such as job/train-1 or rayjob/llama.

The operator evaluates the gate again, without writing anything, and returns the room, the
scores and the reservations of each candidate cluster.

` + explanation.OperatorHelp,
		Example: "  kubectl plimsoll explain workload job/train-1 -n team-a",
		Args:    command.ExactArgs(1, "the name of a workload, or KIND/NAME of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			report, err := explainWorkload(cmd.Context(), a, &operator, args[0])
			if err != nil {
				return err
			}
			return out.Print(a.Out, "WorkloadExplanation", report, func(w io.Writer) { report.WriteRows(w, a.Paint, a.Now(), out.IsWide()) })
		},
		ValidArgsFunction: hubclient.Complete(a, listWorkloadNames),
	}
	out.Add(cmd)
	operator.Add(cmd.Flags())
	return cmd
}

func explainWorkload(ctx context.Context, a *command.App, operator *explanation.OperatorFlags, name string) (*explain.Report, error) {
	c, namespace, err := hubclient.Connect(a)
	if err != nil {
		return nil, err
	}
	wl, err := hubclient.FindWorkload(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	return explanation.Workload(ctx, a, c, operator, wl)
}

// listWorkloadNames returns the names of all workloads and of their owners, as KIND/NAME.
func listWorkloadNames(ctx context.Context, c client.Client, namespace string) (names []string, err error) {
	list := &kueue.WorkloadList{}
	err = c.List(ctx, list, client.InNamespace(namespace))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
		if owner := hubclient.OwnerOf(&list.Items[i]); owner != "" {
			names = append(names, owner)
		}
	}
	return names, err
}
