package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// listNames returns names of objects on the hub. namespace applies to namespaced kinds.
type listNames func(ctx context.Context, c client.Client, namespace string) ([]string, error)

// completeFromHub completes the only argument of a command with names from the hub.
func (a *app) completeFromHub(list listNames) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, namespace, err := a.connect()
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

func listPolicyNames(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &v1alpha1.ScoringPolicyList{}
	err = c.List(ctx, list)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

func listClusterNames(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &clusterv1.ManagedClusterList{}
	err = c.List(ctx, list)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

// listWorkloadNames returns the names of all workloads and of their owners, as KIND/NAME.
func listWorkloadNames(ctx context.Context, c client.Client, namespace string) (names []string, err error) {
	list := &kueue.WorkloadList{}
	err = c.List(ctx, list, client.InNamespace(namespace))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
		if owner := ownerOf(&list.Items[i]); owner != "" {
			names = append(names, owner)
		}
	}
	return names, err
}

// listReleasableGates returns the gates that own a MultiKueueConfig.
func listReleasableGates(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &kueue.MultiKueueConfigList{}
	err = c.List(ctx, list, client.HasLabels{v1alpha1.ManagedByLabel})
	for i := range list.Items {
		names = append(names, list.Items[i].Labels[v1alpha1.ManagedByLabel])
	}
	return names, err
}
