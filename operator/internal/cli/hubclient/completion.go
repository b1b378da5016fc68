package hubclient

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

// ListNames returns names of objects on the hub. namespace applies to namespaced kinds.
type ListNames func(ctx context.Context, c client.Client, namespace string) ([]string, error)

// Complete completes the only argument of a command with names from the hub.
func Complete(a *command.App, list ListNames) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, namespace, err := Connect(a)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := list(cmd.Context(), c, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}
