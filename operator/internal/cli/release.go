package cli

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
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

func newRelease(a *app) *cobra.Command {
	dryRun, unused := false, false
	cmd := &cobra.Command{
		Use:   "release GATE",
		Short: "Remove what a deleted gate left in place for its running jobs",
		Long: `Remove what a deleted gate left in place for its running jobs.

A gate's MultiKueueConfig and MultiKueueClusters outlive it, for deleting them would
evict what runs through them. Once no AdmissionCheck names them and no unfinished
workload uses them, release deletes those that carry the label ` + v1alpha1.ManagedByLabel + `=GATE, and nothing else.

With --unused the gate may live. Of its MultiKueueClusters those go that no
MultiKueueConfig names and no unfinished workload is on or nominated to, such as those of
clusters that left the fleet: Kueue keeps a connection to each.`,
		Args:              exactly(1, "the name of a PlacementGate"),
		ValidArgsFunction: a.complete(releasable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if unused {
				return releaseUnused(cmd.Context(), a, args[0], dryRun)
			}
			return release(cmd.Context(), a, args[0], dryRun)
		},
	}
	cmd.Flags().BoolVar(&unused, "unused", false, "remove only MultiKueueClusters that nothing uses, also while the gate exists")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be deleted")
	return cmd
}

func release(ctx context.Context, a *app, name string, dryRun bool) error {
	c, _, err := a.connect()
	if err != nil {
		return err
	}
	err = c.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.PlacementGate{})
	if err == nil {
		return fmt.Errorf("PlacementGate %s still exists and would write them anew: delete it first, or remove what it does not use with --unused", name)
	}
	if client.IgnoreNotFound(err) != nil {
		return reading("PlacementGate "+name, err)
	}
	labeled := client.MatchingLabels{v1alpha1.ManagedByLabel: name}
	configs, clusters := &kueue.MultiKueueConfigList{}, &kueue.MultiKueueClusterList{}
	if err := c.List(ctx, configs, labeled); err != nil {
		return reading("MultiKueueConfigs", err)
	}
	if err := c.List(ctx, clusters, labeled); err != nil {
		return reading("MultiKueueClusters", err)
	}
	users, err := usersOf(ctx, c, configs.Items, clusters.Items)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("still in use, nothing was deleted: %s", strings.Join(users, "; "))
	}
	var doomed []client.Object // the configuration first: it names the clusters
	for i := range configs.Items {
		doomed = append(doomed, &configs.Items[i])
	}
	for i := range clusters.Items {
		doomed = append(doomed, &clusters.Items[i])
	}
	return a.remove(ctx, c, doomed, dryRun)
}

func (a *app) remove(ctx context.Context, c client.Client, doomed []client.Object, dryRun bool) error {
	if len(doomed) == 0 {
		_, _ = fmt.Fprintln(a.ErrOut, "Nothing to release.")
	}
	for _, object := range doomed {
		what, done := "multikueuecluster", "deleted"
		if _, ok := object.(*kueue.MultiKueueConfig); ok {
			what = "multikueueconfig"
		}
		if dryRun {
			done = "would be deleted"
		} else if err := c.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return reading(what+" "+object.GetName(), err)
		}
		_, _ = fmt.Fprintf(a.Out, "%s.kueue.x-k8s.io/%s %s\n", what, object.GetName(), done)
	}
	return nil
}

// usersOf says what still needs any of the objects.
func usersOf(ctx context.Context, c client.Client, configs []kueue.MultiKueueConfig, clusters []kueue.MultiKueueCluster) ([]string, error) {
	ours, checks := map[string]bool{}, &kueue.AdmissionCheckList{}
	for _, config := range configs {
		ours[config.Name] = true
	}
	if err := c.List(ctx, checks); err != nil {
		return nil, reading("AdmissionChecks", err)
	}
	through := map[string]bool{}
	var named []string
	for _, check := range checks.Items {
		if config, ok := kueuestate.MultiKueueConfigOf(&check); ok && ours[config] {
			through[check.Name] = true
			named = append(named, fmt.Sprintf("AdmissionCheck %s names MultiKueueConfig %s", check.Name, config))
		}
	}
	users, err := workloadsOf(ctx, c, through, clusters)
	if err != nil {
		return nil, err
	}
	users = append(users, named...)
	others := &kueue.MultiKueueConfigList{}
	if err := c.List(ctx, others); err != nil {
		return nil, reading("MultiKueueConfigs", err)
	}
	for _, other := range others.Items {
		for _, cluster := range clusters {
			if !ours[other.Name] && slices.Contains(other.Spec.Clusters, cluster.Name) {
				users = append(users, fmt.Sprintf("MultiKueueConfig %s names %s", other.Name, cluster.Name))
			}
		}
	}
	return users, nil
}

// workloadsOf an unfinished workload's check, or on one of the clusters.
func workloadsOf(ctx context.Context, c client.Client, through map[string]bool, clusters []kueue.MultiKueueCluster) ([]string, error) {
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list); err != nil {
		return nil, reading("workloads", err)
	}
	names := map[string]bool{}
	for _, cluster := range clusters {
		names[cluster.Name] = true
	}
	users := map[string]bool{}
	for i := range list.Items {
		wl := &list.Items[i]
		key := "workload " + client.ObjectKeyFromObject(wl).String()
		for _, check := range wl.Status.AdmissionChecks {
			if through[string(check.Name)] && !kueuestate.IsFinished(wl) {
				users[key] = true
			}
		}
		if on := wl.Status.ClusterName; on != nil && names[*on] && !kueuestate.IsFinished(wl) {
			users[key+" is on "+*on] = true
			delete(users, key)
		}
	}
	return slices.Sorted(maps.Keys(users)), nil
}
