package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listNames returns names of objects on the hub. namespace applies to namespaced kinds.
type listNames func(ctx context.Context, c client.Client, namespace string) ([]string, error)

// completeFromHub completes the only argument of a command with names from the hub.
func completeFromHub(a *app, list listNames) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, namespace, err := connectHub(a)
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
