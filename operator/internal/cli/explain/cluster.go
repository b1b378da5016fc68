package explain

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

func newExplainCluster(a *command.App) *cobra.Command {
	var out command.OutputFlag
	var operator explanation.OperatorFlags
	cmd := &cobra.Command{
		Use:               "cluster NAME",
		Short:             "Show the scores of a cluster from every policy",
		Long:              "Show the scores of a cluster from every policy.\n\n" + explanation.OperatorHelp,
		Args:              command.ExactArgs(1, "the name of a ManagedCluster"),
		ValidArgsFunction: hubclient.Complete(a, listClusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			list, notShown, err := explanation.Cluster(cmd.Context(), a, &operator, args[0])
			if err != nil {
				return err
			}
			return out.Print(a.Out, "ClusterExplanationList", list, func(w io.Writer) {
				if notShown != "" {
					format.Row(w, "Not shown:", notShown)
				}
				explanation.WriteScores(w, list, true, a.Now())
			})
		},
	}
	out.Add(cmd)
	operator.Add(cmd.Flags())
	return cmd
}

func listClusterNames(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &clusterv1.ManagedClusterList{}
	err = c.List(ctx, list)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}
