// Package explain explains scores and placement decisions, from the operator or from the objects on the
// hub: the command explain.
package explain

import (
	"strings"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

// New returns the command explain.
func New(a *command.App) *cobra.Command {
	explain := &cobra.Command{
		Use:   "explain",
		Short: "Explain a score, a placement decision or a waiting workload",
		Long: `Explain a score, a placement decision or a waiting workload.

explain KIND/NAME is short for explain workload KIND/NAME, such as explain job/train-1.`,
	}
	workload := newExplainWorkload(a)
	explain.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && (len(args) > 1 || !strings.Contains(args[0], "/")) {
			return command.Usagef("can't explain %q: choose workload, policy, cluster or KIND/NAME of a job", args[0])
		}
		return nil
	}
	explain.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return workload.RunE(cmd, args)
	}
	explain.Flags().AddFlagSet(workload.Flags())
	explain.AddCommand(workload, newExplainPolicy(a), newExplainCluster(a))
	return explain
}
