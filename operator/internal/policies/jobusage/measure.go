// Package jobusage queries what a job used on its cluster.
package jobusage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// labelModel is the label of the device model.
const labelModel = "model"

// Job is a job whose pods ran on a cluster.
type Job struct {
	Namespace, OwnerKind, OwnerName string
	Cluster                         string
	// End and Duration of the run.
	End      time.Time
	Duration time.Duration
}

// Source is a source of metrics with the clusters behind its series.
type Source struct {
	Querier query.Querier
	Info    query.SourceInfo
	Members []clusterv1.ManagedCluster
}

// Measure sends the queries and returns the results by quantity and model. An error means that a
// quantity could not be queried: a run without it would look like a run that did not use it.
func Measure(ctx context.Context, source Source, job Job, queries []profile.Query) (map[v1alpha1.ProfileQuantity]map[string]float64, error) {
	facts, err := factsOf(&job, source)
	if err != nil {
		return nil, err
	}
	ctx = query.ForClusters(ctx, []string{job.Cluster})
	clusters := clustermap.New(source.Members, source.Info).Select([]string{job.Cluster})
	results := map[v1alpha1.ProfileQuantity]map[string]float64{}
	for _, q := range queries {
		expr, err := render(q.Expr, source.Info.ClusterLabel, facts)
		if err != nil {
			return nil, fmt.Errorf("query of %s: %w", q.Quantity, err)
		}
		response, err := source.Querier.Query(ctx, expr, job.End)
		if err != nil {
			return nil, fmt.Errorf("query of %s: %w", q.Quantity, err)
		}
		if response.Partial || response.Failed[job.Cluster] != "" {
			return nil, fmt.Errorf("query of %s: some stores of the source did not respond", q.Quantity)
		}
		results[q.Quantity] = byModel(clusters, response.Samples, q.Model)
	}
	return results, nil
}

// factsOf returns the values of the queries' variables. All of them must be known: a
// variable without a value would match the pods of other jobs.
func factsOf(job *Job, source Source) (map[string]string, error) {
	facts := map[string]string{"namespace": job.Namespace, "owner_kind": job.OwnerKind, "owner_name": job.OwnerName}
	i := slices.IndexFunc(source.Members, func(c clusterv1.ManagedCluster) bool { return c.Name == job.Cluster })
	if i < 0 {
		return nil, fmt.Errorf("ManagedCluster %s is not a member of the hub", job.Cluster)
	}
	facts["cluster"] = clustermap.SeriesValue(&source.Members[i], source.Info)
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

// byModel returns the value of each device model on the cluster of the mapping. If a model is given,
// all samples are of this model, and otherwise, samples without the label do not count. A model with
// several samples has no value.
func byModel(clusters *clustermap.Mapping, samples []query.Sample, only string) map[string]float64 {
	byName := map[string][]query.Sample{}
	for _, s := range samples {
		model := s.Labels[labelModel]
		if only != "" {
			model = only
		}
		if model != "" {
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
