package explain

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

func newExplainPolicy(a *command.App) *cobra.Command {
	var out command.OutputFlag
	var operator explanation.OperatorFlags
	cmd := &cobra.Command{
		Use:               "policy NAME",
		Short:             "Show the queries of a policy, their results, and the score of each cluster",
		Long:              "Show the queries of a policy in its last round, their results, and the score of each cluster.\n\n" + explanation.OperatorHelp,
		Args:              command.ExactArgs(1, "the name of a ScoringPolicy"),
		ValidArgsFunction: hubclient.Complete(a, listPolicyNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			c, _, err := hubclient.Connect(a)
			if err != nil {
				return err
			}
			report, err := explanation.Policy(cmd.Context(), a, c, &operator, args[0])
			if err != nil {
				return err
			}
			return out.Print(a.Out, "PolicyExplanation", report, func(w io.Writer) { report.WriteRows(w, a) })
		},
	}
	out.Add(cmd)
	operator.Add(cmd.Flags())
	return cmd
}

func listPolicyNames(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &v1alpha1.ScoringPolicyList{}
	err = c.List(ctx, list)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}
