package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newExplainCluster(a *app) *cobra.Command {
	var out output
	var operator operatorFlags
	cmd := &cobra.Command{
		Use:               "cluster NAME",
		Short:             "One cluster's scores by every policy",
		Long:              "One cluster's scores by every policy.\n\n" + operatorHelp,
		Args:              exactly(1, "the name of a ManagedCluster"),
		ValidArgsFunction: a.complete(clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			list, err := explainCluster(cmd.Context(), a, &operator, args[0])
			if err != nil {
				return err
			}
			return out.print(a.Out, list, func(w io.Writer) {
				if operator.url == "" {
					line(w, "Not shown:", rawNotShown)
				}
				writeScores(w, list, true, a.now())
			})
		},
	}
	out.add(cmd)
	operator.add(cmd.Flags())
	return cmd
}

func explainCluster(ctx context.Context, a *app, operator *operatorFlags, name string) (list []clusterReport, err error) {
	if operator.url != "" {
		return list, operator.get(ctx, "/explain/cluster/"+name, &list)
	}
	c, _, err := a.connect()
	if err != nil {
		return nil, err
	}
	list, err = publishedScores(ctx, c, func(s *clusterv1alpha1.AddOnPlacementScore) bool { return s.Namespace == name })
	if err == nil && len(list) == 0 {
		return nil, fmt.Errorf("no score is published for cluster %s: does it exist, and does a ScoringPolicy select it?", name)
	}
	return list, err
}

// publishedScores that are wanted, sorted by cluster and policy.
func publishedScores(ctx context.Context, c client.Client, wanted func(*clusterv1alpha1.AddOnPlacementScore) bool) ([]clusterReport, error) {
	list := &clusterv1alpha1.AddOnPlacementScoreList{}
	if err := c.List(ctx, list); err != nil {
		return nil, reading("AddOnPlacementScores", err)
	}
	clusters := []clusterReport{}
	for i := range list.Items {
		if object := &list.Items[i]; wanted(object) {
			clusters = append(clusters, clusterReport{Policy: object.Name, Cluster: object.Namespace, Scores: scoresOf(object)})
		}
	}
	slices.SortFunc(clusters, func(a, b clusterReport) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Policy, b.Policy))
	})
	return clusters, nil
}
