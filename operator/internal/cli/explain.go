package cli

import (
	"github.com/spf13/cobra"
)

func newExplain(a *app) *cobra.Command {
	explain := &cobra.Command{
		Use:   "explain",
		Short: "Explain a score, a placement decision or a waiting workload",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("can't explain %q: choose workload, policy or cluster", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	explain.AddCommand(newExplainWorkload(a), newExplainPolicy(a), newExplainCluster(a))
	return explain
}
