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

// complete the one argument of a command with the names that a hub knows.
func (a *app) complete(names func(ctx context.Context, c client.Client, namespace string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, namespace, err := a.connect()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, err := names(cmd.Context(), c, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
	}
}

func policyNames(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &v1alpha1.ScoringPolicyList{}
	err = c.List(ctx, list)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

func clusterNames(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &clusterv1.ManagedClusterList{}
	err = c.List(ctx, list)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

// workloadNames are those of the workloads and of what owns them.
func workloadNames(ctx context.Context, c client.Client, namespace string) (names []string, err error) {
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

// releasable are the gates whose objects are still there.
func releasable(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &kueue.MultiKueueConfigList{}
	err = c.List(ctx, list, client.HasLabels{v1alpha1.ManagedByLabel})
	for i := range list.Items {
		names = append(names, list.Items[i].Labels[v1alpha1.ManagedByLabel])
	}
	return names, err
}
