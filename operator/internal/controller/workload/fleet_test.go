//go:build integration

package workload_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// clusterMetrics are the device metrics of one cluster.
type clusterMetrics struct {
	// slots are the pods of 8 devices that fit.
	slots float64
	// free devices in the cluster, and on the node with the most free devices.
	free, largestNode float64
	// total devices.
	total float64
}

// fakePrometheus is a metrics source that returns values set by the test for the queries of
// the recording rules.
type fakePrometheus struct {
	mu       sync.Mutex
	clusters map[string]*clusterMetrics
	// unreservedQuota of the cluster's queue.
	unreservedQuota map[string]float64
	// withQuotaMetrics are the clusters whose Kueue exports quota metrics.
	withQuotaMetrics []string
	// requirements maps a query to the clusters for which the result is 1.
	requirements map[string][]string
	// sampledAt is the time of all samples; zero = now.
	sampledAt time.Time
	// err is returned for every query.
	err error
	// failingQuery is the only query that fails.
	failingQuery string
}

// fleet is the metrics source of every test.
var fleet = &fakePrometheus{clusters: map[string]*clusterMetrics{}}

// reset replaces all metrics.
func (p *fakePrometheus) reset(clusters map[string]*clusterMetrics) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clusters, p.unreservedQuota, p.withQuotaMetrics, p.requirements = clusters, nil, nil, nil
	p.sampledAt, p.err, p.failingQuery = time.Time{}, nil, ""
}

// update changes some of the metrics.
func (p *fakePrometheus) update(change func(*fakePrometheus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// Query implements query.Source.
func (p *fakePrometheus) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return query.Result{}, p.err
	}
	if expr == p.failingQuery {
		return query.Result{}, errors.New("too heavy")
	}
	if clusters, ok := p.requirements[expr]; ok {
		return resultOfOnes(clusters), nil
	}
	if strings.HasPrefix(expr, "count by (cluster) (cluster_queue:") {
		return resultOfOnes(p.withQuotaMetrics), nil
	}
	var result query.Result
	for name, c := range p.clusters {
		if value, ok := p.valueOf(expr, name, c); ok {
			queues := []string{""}
			if strings.Contains(expr, "by (cluster, cluster_queue)") {
				queues = []string{"gpu", "prio"}
			}
			for _, queue := range queues {
				result.Samples = append(result.Samples, query.Sample{Labels: map[string]string{"cluster": name, "cluster_queue": queue}, Value: value})
			}
		}
	}
	return result, nil
}

// valueOf returns a cluster's value; false = the cluster has no such series.
func (p *fakePrometheus) valueOf(expr, cluster string, c *clusterMetrics) (float64, bool) {
	switch {
	case strings.Contains(expr, "sample_timestamp") && p.sampledAt.IsZero():
		return float64(time.Now().Unix()), true
	case strings.Contains(expr, "sample_timestamp"):
		return float64(p.sampledAt.Unix()), true
	case strings.Contains(expr, "kube_localqueue_info"), strings.Contains(expr, "kueue_quota_limit"):
		return 0, false
	case strings.Contains(expr, "kueue_unreserved_quota"):
		quota, ok := p.unreservedQuota[cluster]
		return quota, ok
	case strings.HasPrefix(expr, "max by (cluster) (node_resource_model:plimsoll_devices:placeable"): // the largest node
		return 8, true
	case strings.Contains(expr, "plimsoll_devices:placeable"): // emptyFit
		return c.total / 8, true
	case strings.Contains(expr, "node_free_devices:max"):
		return c.largestNode, true
	case strings.Contains(expr, "plimsoll_free_devices:sum"):
		return c.free, true
	case strings.Contains(expr, "plimsoll_devices:sum"):
		return c.total, true
	}
	return c.slots, true
}

func resultOfOnes(clusters []string) query.Result {
	var result query.Result
	for _, name := range clusters {
		result.Samples = append(result.Samples, query.Sample{Labels: map[string]string{"cluster": name}, Value: 1})
	}
	return result
}

// Each test has its own source name, so that no test sees cached results of another. Every
// operator knows all sources.
var (
	allSources  []*query.Sources
	sourceNames = map[string]bool{}
)

// registerSource registers fleet as a source in every operator.
func registerSource(name string) {
	sourceNames[name] = true
	for _, sources := range allSources {
		sources.Set(query.SourceInfo{Name: name, ClusterLabel: "cluster"}, fleet)
	}
}
