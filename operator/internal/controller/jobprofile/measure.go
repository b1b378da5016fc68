package jobprofile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/profile"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// labelModel is the label of the device model.
const labelModel = "model"

// measure sends one query per quantity. An error means that a quantity could not be queried:
// a run without it would look like a run that did not use it.
func (r *Reconciler) measure(ctx context.Context, f *finishedRun) (profile.Run, error) {
	querier, info, err := r.sources.For(f.gate.Spec.SourceRef.Name)
	if err != nil {
		return profile.Run{}, err
	}
	members, err := hubstate.ManagedClusters(ctx, r.client)
	if err != nil {
		return profile.Run{}, err
	}
	facts, err := factsOf(f, members, info)
	if err != nil {
		return profile.Run{}, err
	}
	ctx = query.ForClusters(ctx, []string{f.cluster})
	clusters := clustermap.New(members, info).Select([]string{f.cluster})
	results := map[v1alpha1.ProfileQuantity]map[string]float64{}
	for _, q := range profile.Queries(f.duration) {
		expr, err := render(q.Expr, info.ClusterLabel, facts)
		if err != nil {
			return profile.Run{}, fmt.Errorf("query of %s: %w", q.Quantity, err)
		}
		response, err := querier.Query(ctx, expr, f.end)
		if err != nil {
			return profile.Run{}, fmt.Errorf("query of %s: %w", q.Quantity, err)
		}
		if response.Partial || response.Failed[f.cluster] != "" {
			return profile.Run{}, fmt.Errorf("query of %s: some stores of the source did not respond", q.Quantity)
		}
		results[q.Quantity] = byModel(clusters, response.Samples)
	}
	return profile.NewRun(f.uid, f.end, f.duration, results), nil
}

// factsOf returns the values of the queries' variables. All of them must be known: a
// variable without a value would match the pods of other jobs.
func factsOf(f *finishedRun, members []clusterv1.ManagedCluster, info query.SourceInfo) (map[string]string, error) {
	facts := map[string]string{"namespace": f.namespace, "owner_kind": f.ownerKind, "owner_name": f.ownerName}
	i := slices.IndexFunc(members, func(c clusterv1.ManagedCluster) bool { return c.Name == f.cluster })
	if i < 0 {
		return nil, fmt.Errorf("ManagedCluster %s is not a member of the hub", f.cluster)
	}
	facts["cluster"] = clustermap.SeriesValue(&members[i], info)
	for _, name := range profile.Variables {
		if facts[name] == "" {
			return nil, fmt.Errorf("$%s has no value", name)
		}
	}
	return facts, nil
}

// render replaces the variables of a query. Each value becomes one quoted label value, so
// that the name of a job can't change the query.
func render(expr, clusterLabel string, facts map[string]string) (string, error) {
	expr, _ = promql.ExpandClusterLabel(expr, clusterLabel)
	template, problems := promql.ParseTemplate(expr, profile.Variables)
	if problems != nil {
		return "", errors.New(promql.Strings(problems))
	}
	return template.Render(facts)
}

// byModel returns the value of each device model on the cluster of the mapping. A model with
// several samples has no value.
func byModel(clusters *clustermap.Mapping, samples []query.Sample) map[string]float64 {
	byName := map[string][]query.Sample{}
	for _, s := range samples {
		if model := s.Labels[labelModel]; model != "" {
			byName[model] = append(byName[model], s)
		}
	}
	values := map[string]float64{}
	for model, list := range byName {
		for _, v := range clusters.Group(list).ByCluster() {
			if v.Outcome == clustermap.Found {
				values[model] = v.Value
			}
		}
	}
	return values
}
