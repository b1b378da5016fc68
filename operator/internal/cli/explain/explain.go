// Package explain explains scores and placement decisions, from the operator or from the objects on the
// hub: the command explain.
package explain

import (
	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

// New returns the command explain.
func New(a *command.App) *cobra.Command {
	explain := &cobra.Command{
		Use:   "explain",
		Short: "Explain a score, a placement decision or a waiting workload",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usagef("can't explain %q: choose workload, policy or cluster", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	explain.AddCommand(newExplainWorkload(a), newExplainPolicy(a), newExplainCluster(a))
	return explain
}
