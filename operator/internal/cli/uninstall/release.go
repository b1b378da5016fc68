package uninstall

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

// NewRelease returns the command release.
func NewRelease(a *command.App) *cobra.Command {
	dryRun, unused := false, false
	cmd := &cobra.Command{
		Use:   "release GATE",
		Short: "Delete the MultiKueue objects of a deleted gate",
		Long: `Delete the MultiKueue objects of a deleted gate.

The MultiKueueConfig and MultiKueueClusters of a gate are kept when the gate is deleted,
because their deletion would evict the workloads that run through them. release deletes the
objects with the label ` + v1alpha1.ManagedByLabel + `=GATE, if no AdmissionCheck refers to them
and no unfinished workload uses them.

With --unused, the gate may still exist. release then deletes only the MultiKueueClusters of
the gate that no MultiKueueConfig refers to and that no unfinished workload runs on, is
nominated to or is being evicted from, such as those of clusters that have left the fleet.
Kueue keeps a connection to every MultiKueueCluster.`,
		Args:              command.ExactArgs(1, "the name of a PlacementGate"),
		ValidArgsFunction: hubclient.Complete(a, listReleasableGates),
		RunE: func(cmd *cobra.Command, args []string) error {
			if unused {
				return releaseUnused(cmd.Context(), a, args[0], dryRun)
			}
			return release(cmd.Context(), a, args[0], dryRun)
		},
	}
	cmd.Flags().BoolVar(&unused, "unused", false, "delete only unused MultiKueueClusters; the gate may still exist")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be deleted")
	return cmd
}

// release deletes all objects of a deleted gate, unless any of them is in use.
func release(ctx context.Context, a *command.App, name string, dryRun bool) error {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return err
	}
	err = c.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.PlacementGate{})
	if err == nil {
		return fmt.Errorf("PlacementGate %s still exists and would create the objects again: delete the gate first, or use --unused", name)
	}
	if client.IgnoreNotFound(err) != nil {
		return hubclient.Reading("PlacementGate "+name, err)
	}
	labeled := client.MatchingLabels{v1alpha1.ManagedByLabel: name}
	configs, clusters := &kueue.MultiKueueConfigList{}, &kueue.MultiKueueClusterList{}
	if err := c.List(ctx, configs, labeled); err != nil {
		return hubclient.Reading("MultiKueueConfigs", err)
	}
	if err := c.List(ctx, clusters, labeled); err != nil {
		return hubclient.Reading("MultiKueueClusters", err)
	}
	users, err := findUsers(ctx, c, configs.Items, clusters.Items)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("nothing was deleted, because the objects are still in use: %s", strings.Join(users, "; "))
	}
	var objects []client.Object // configurations first, because they refer to the clusters
	for i := range configs.Items {
		objects = append(objects, &configs.Items[i])
	}
	for i := range clusters.Items {
		objects = append(objects, &clusters.Items[i])
	}
	return deleteObjects(ctx, a, c, objects, dryRun)
}

// releaseUnused deletes the unused MultiKueueClusters of a gate. A gate can start to use a
// MultiKueueCluster at the same time. This is safe: the gate creates the object again before
// its MultiKueueConfig refers to the name.
func releaseUnused(ctx context.Context, a *command.App, name string, dryRun bool) error {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return err
	}
	clusters := &kueue.MultiKueueClusterList{}
	if err := c.List(ctx, clusters, client.MatchingLabels{v1alpha1.ManagedByLabel: name}); err != nil {
		return hubclient.Reading("MultiKueueClusters", err)
	}
	used, err := findUsedClusters(ctx, c)
	if err != nil {
		return err
	}
	var objects []client.Object
	for i := range clusters.Items {
		if !used[clusters.Items[i].Name] {
			objects = append(objects, &clusters.Items[i])
		}
	}
	return deleteObjects(ctx, a, c, objects, dryRun)
}

// deleteObjects deletes MultiKueueConfigs and MultiKueueClusters and prints their names.
func deleteObjects(ctx context.Context, a *command.App, c client.Client, objects []client.Object, dryRun bool) error {
	if len(objects) == 0 {
		_, _ = fmt.Fprintln(a.ErrOut, "Nothing to release.")
	}
	for _, object := range objects {
		resource, result := "multikueuecluster", "deleted"
		if _, ok := object.(*kueue.MultiKueueConfig); ok {
			resource = "multikueueconfig"
		}
		if dryRun {
			result = "would be deleted"
		} else if err := c.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return hubclient.Reading(resource+" "+object.GetName(), err)
		}
		_, _ = fmt.Fprintf(a.Out, "%s.kueue.x-k8s.io/%s %s\n", resource, object.GetName(), result)
	}
	return nil
}

// findUsers returns a description of each workload and object with a reference to the
// configs or clusters.
func findUsers(ctx context.Context, c client.Client, configs []kueue.MultiKueueConfig, clusters []kueue.MultiKueueCluster) ([]string, error) {
	ownConfigs := map[string]bool{}
	for _, config := range configs {
		ownConfigs[config.Name] = true
	}
	admissionChecks := &kueue.AdmissionCheckList{}
	if err := c.List(ctx, admissionChecks); err != nil {
		return nil, hubclient.Reading("AdmissionChecks", err)
	}
	checks := map[string]bool{}
	var checkUsers []string
	for _, check := range admissionChecks.Items {
		if config, ok := kueuestate.MultiKueueConfigOf(&check); ok && ownConfigs[config] {
			checks[check.Name] = true
			checkUsers = append(checkUsers, fmt.Sprintf("AdmissionCheck %s refers to MultiKueueConfig %s", check.Name, config))
		}
	}
	users, err := findWorkloadUsers(ctx, c, checks, clusters)
	if err != nil {
		return nil, err
	}
	users = append(users, checkUsers...)
	allConfigs := &kueue.MultiKueueConfigList{}
	if err := c.List(ctx, allConfigs); err != nil {
		return nil, hubclient.Reading("MultiKueueConfigs", err)
	}
	for _, config := range allConfigs.Items {
		for _, cluster := range clusters {
			if !ownConfigs[config.Name] && slices.Contains(config.Spec.Clusters, cluster.Name) {
				users = append(users, fmt.Sprintf("MultiKueueConfig %s refers to MultiKueueCluster %s", config.Name, cluster.Name))
			}
		}
	}
	return users, nil
}

// findWorkloadUsers returns a description of each unfinished workload with one of the
// checks or on one of the clusters.
func findWorkloadUsers(ctx context.Context, c client.Client, checks map[string]bool, clusters []kueue.MultiKueueCluster) ([]string, error) {
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list); err != nil {
		return nil, hubclient.Reading("workloads", err)
	}
	clusterNames := map[string]bool{}
	for _, cluster := range clusters {
		clusterNames[cluster.Name] = true
	}
	users := map[string]bool{}
	for i := range list.Items {
		wl := &list.Items[i]
		if kueuestate.IsFinished(wl) {
			continue
		}
		name := "workload " + client.ObjectKeyFromObject(wl).String()
		cluster := wl.Status.ClusterName
		switch {
		case cluster != nil && clusterNames[*cluster]:
			users[name+" is on "+*cluster] = true
		case slices.ContainsFunc(wl.Status.AdmissionChecks, func(s kueue.AdmissionCheckState) bool { return checks[string(s.Name)] }):
			users[name] = true
		}
	}
	return slices.Sorted(maps.Keys(users)), nil
}

// findUsedClusters returns the MultiKueueClusters of all MultiKueueConfigs and those of
// unfinished workloads, placed or nominated. Kueue clears both when an eviction begins, and needs the
// connection until it is complete: the record of the workload names the clusters.
func findUsedClusters(ctx context.Context, c client.Client) (map[string]bool, error) {
	// List workloads before configurations: a nomination after the first list is to a
	// cluster of a configuration.
	configs, workloads := &kueue.MultiKueueConfigList{}, &kueue.WorkloadList{}
	if err := c.List(ctx, workloads); err != nil {
		return nil, hubclient.Reading("workloads", err)
	}
	if err := c.List(ctx, configs); err != nil {
		return nil, hubclient.Reading("MultiKueueConfigs", err)
	}
	used := map[string]bool{}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		if kueuestate.IsFinished(wl) {
			continue
		}
		for _, cluster := range wl.Status.NominatedClusterNames {
			used[cluster] = true
		}
		if cluster := wl.Status.ClusterName; cluster != nil {
			used[*cluster] = true
		}
		if !kueuestate.IsBeingEvicted(wl) {
			continue
		}
		record, err := dispatch.Decode(wl.Annotations)
		if err != nil {
			return nil, fmt.Errorf("the clusters that workload %s is being evicted from are not known: %w; repeat the command when the eviction is complete",
				client.ObjectKeyFromObject(wl), err)
		}
		for _, cluster := range record.Sent() {
			used[cluster] = true
		}
	}
	for _, config := range configs.Items {
		for _, cluster := range config.Spec.Clusters {
			used[cluster] = true
		}
	}
	return used, nil
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
