package querycache

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// maxConcurrentQueries is the number of queries that one plan runs at once.
const maxConcurrentQueries = 6

// planFetch is one pass over the queries of a plan.
type planFetch struct {
	cache      *Cache
	plan       *queryPlan
	isServable func(*cachedResult) bool
	// explains: the context may end before the queries do.
	explains bool
	// sampleTimes is the result of the first query; nil until the query has run.
	sampleTimes *cachedResult
	// quotaTimes is the result of the query for the sample times of the quota; nil if the plan has none.
	quotaTimes *cachedResult
}

// queryPlan returns the results of the plan in the order of its queries. It runs the queries without a
// cached result for which isServable is true.
func (f *planFetch) queryPlan(ctx context.Context) []queryResult {
	first := 1
	if f.plan.hasQuotaTimes() {
		first = 2
	}
	results := f.queryAll(ctx, f.plan.queries[:first])
	f.sampleTimes = results[0].result
	if first > 1 {
		f.quotaTimes = results[1].result
	}
	return append(results, f.queryAll(ctx, f.plan.queries[first:])...)
}

func (f *planFetch) queryAll(ctx context.Context, queries []renderedQuery) []queryResult {
	results := f.cache.lookUp(queries, f.isServable)
	isAbsent := func(r queryResult) bool { return r.result == nil }
	if !slices.ContainsFunc(results, isAbsent) {
		if logger := log.FromContext(ctx).V(1); logger.Enabled() {
			logger.Info("Used cached query results", "gate", f.plan.key.Gate, "queries", len(queries))
		}
		return results
	}
	source := f.cache.querySource(ctx, f.plan.key.Source, f.plan.key.ClusterLabel)
	if source.err == nil && source.id != f.plan.key.SourceID {
		source.err = errSourceChanged
	}
	var group errgroup.Group
	group.SetLimit(maxConcurrentQueries)
	for i := range results {
		if isAbsent(results[i]) {
			group.Go(func() error {
				if f.explains {
					results[i].result = f.runAndStore(ctx, source, results[i].renderedQuery)
					return nil
				}
				results[i].result = f.queryOnce(ctx, source, results[i].renderedQuery)
				return nil
			})
		}
	}
	_ = group.Wait() // always nil: each result carries its own error
	return results
}

// queryOnce runs a query, or waits for the same query of another plan. That query may have
// started too early to be servable. In this case queryOnce runs the query again.
func (f *planFetch) queryOnce(ctx context.Context, source querySource, q *renderedQuery) *cachedResult {
	runOrWait := func() *cachedResult {
		got, _, _ := f.cache.flights.Do(q.cacheKey, func() (any, error) {
			return f.runAndStore(ctx, source, q), nil
		})
		return got.(*cachedResult)
	}
	result := runOrWait()
	if !f.isServable(result) {
		result = runOrWait()
	}
	return result
}

// runAndStore runs a query. If the context has ended, the source is not at fault, and the cache keeps what
// it has.
func (f *planFetch) runAndStore(ctx context.Context, source querySource, q *renderedQuery) *cachedResult {
	result := f.run(ctx, source, q)
	if ctx.Err() != nil {
		return result
	}
	if previous := f.cache.store(q, result); previous != nil {
		f.logTransition(ctx, q, previous, result)
	}
	return result
}

// run queries the source. If the sample times could not be queried, run skips the query
// and returns their error.
func (f *planFetch) run(ctx context.Context, source querySource, q *renderedQuery) *cachedResult {
	if times := f.sampleTimes; times != nil && times.err != nil {
		f.logger(ctx).V(1).Info("Skipped query: the query for sample times failed", "query", q.Name)
		return &cachedResult{queriedAt: times.queriedAt, failingSince: times.failingSince, err: times.err, skipped: true}
	}
	result := &cachedResult{queriedAt: f.cache.now()}
	if q.measuresRoom() {
		result.sampleTimes = f.sampleTimes
	}
	if q.returnsQuota() {
		result.quotaTimes = f.quotaTimes
	}
	switch {
	case q.Name == gate.QueryLocalQueues:
		result.err = source.fetchLocalQueues(ctx, q.expr, result)
	case q.PerQueue:
		result.err = source.fetchPerQueue(ctx, q.expr, result)
	case q.ObjectLabel != "":
		result.err = source.fetchObjects(ctx, q.expr, q.ObjectLabel, result)
	default:
		result.err = source.fetch(ctx, q.expr, result)
	}
	if result.err == nil {
		result.succeededAt = result.queriedAt
	}
	return result
}

// logTransition logs when a query begins to fail and when it succeeds again.
func (f *planFetch) logTransition(ctx context.Context, q *renderedQuery, previous, result *cachedResult) {
	logger := f.logger(ctx).WithValues("query", q.Name)
	switch {
	case result.failureLogged && !previous.failureLogged:
		logger.Error(result.err, "Query failed; its last values stay in use until they are too old", "lastSuccess", previous.succeededAt)
	case result.err == nil && previous.failureLogged:
		logger.Info("Query succeeded again", "failingSince", previous.failingSince)
	}
}

func (f *planFetch) logger(ctx context.Context) logr.Logger {
	return log.FromContext(ctx).WithValues("gate", f.plan.key.Gate, "source", f.plan.key.Source)
}

// errSourceChanged fails the queries of a plan that was made for other settings of its source.
var errSourceChanged = errors.New("the settings of the MetricsSource have changed")

// querySource is a source with the mapping of its series to clusters.
type querySource struct {
	querier query.Querier
	// id is the Identity of the source.
	id string
	// label of the series that carries the cluster.
	label string
	// mapping of the label's values. It is nil if the values are the clusters' names.
	mapping *clustermap.Mapping
	// hasStoresByCluster is true for Thanos: a store that does not respond takes whole clusters.
	hasStoresByCluster bool
	// err is the reason why the source can't be queried; nil = none.
	err error
}

// querySource returns a source whose series carry the cluster in a label.
func (c *Cache) querySource(ctx context.Context, name, label string) querySource {
	querier, info, err := c.sources.For(name)
	if err != nil {
		return querySource{err: err}
	}
	source := querySource{querier: querier, id: info.Identity(), label: label, hasStoresByCluster: info.Partial}
	switch v1alpha1.ClusterMatch(info.Match) {
	case v1alpha1.MatchLabel, v1alpha1.MatchClusterClaim:
		clusters, err := hubstate.ManagedClusters(ctx, c.hub)
		if err != nil {
			return querySource{err: err}
		}
		// The queries were rendered with this label. The source's may differ since.
		info.ClusterLabel = source.label
		source.mapping = clustermap.New(clusters, info)
	default:
	}
	return source
}

// fetch runs a query at result.queriedAt and writes the response to result.
func (s *querySource) fetch(ctx context.Context, expr string, result *cachedResult) error {
	response, err := s.query(ctx, expr, result.queriedAt)
	if err != nil {
		return err
	}
	result.setCompleteness(response)
	result.lacksWholeClusters = s.hasStoresByCluster && promql.IsByLabel(expr, s.label)
	result.setSamples(s.group(response.Samples))
	return nil
}

// fetchPerQueue is fetch for a query per queue.
func (s *querySource) fetchPerQueue(ctx context.Context, expr string, result *cachedResult) error {
	response, err := s.query(query.WithAllLabels(ctx), expr, result.queriedAt)
	if err != nil {
		return err
	}
	result.setCompleteness(response)
	result.valuesByQueue = valuesBy(s, response.Samples, func(sample query.Sample) string { return sample.Label(gate.LabelClusterQueue) })
	return nil
}

// fetchObjects runs a query that returns one series for each object, with the object's name in a
// label, and writes the names by cluster to result. The values of the series don't matter.
func (s *querySource) fetchObjects(ctx context.Context, expr, label string, result *cachedResult) error {
	response, err := s.query(query.WithAllLabels(ctx), expr, result.queriedAt)
	if err != nil {
		return err
	}
	result.setCompleteness(response)
	result.objects = map[string]map[string]bool{}
	for _, sample := range response.Samples {
		cluster, ok := s.cluster(sample)
		if !ok {
			continue
		}
		if result.objects[cluster] == nil {
			result.objects[cluster] = map[string]bool{}
		}
		result.objects[cluster][sample.Label(label)] = true
	}
	return nil
}

// fetchLocalQueues runs the query for LocalQueues and writes their ClusterQueues to result.
func (s *querySource) fetchLocalQueues(ctx context.Context, expr string, result *cachedResult) error {
	response, err := s.query(query.WithAllLabels(ctx), expr, result.queriedAt)
	if err != nil {
		return err
	}
	result.setCompleteness(response)
	result.localQueues = map[string]map[string]string{}
	for _, sample := range response.Samples {
		cluster, ok := s.cluster(sample)
		if !ok {
			continue
		}
		if result.localQueues[cluster] == nil {
			result.localQueues[cluster] = map[string]string{}
		}
		result.localQueues[cluster][sample.Label(gate.LabelNamespace)+"/"+sample.Label(gate.LabelLocalQueue)] = sample.Label(gate.LabelClusterQueue)
	}
	return nil
}

// cluster returns the cluster of a sample. ok is false if the sample names none, or several.
func (s *querySource) cluster(sample query.Sample) (name string, ok bool) {
	value := sample.Label(s.label)
	if s.mapping == nil {
		return value, value != ""
	}
	return s.mapping.Cluster(value)
}

// query runs a query at a time.
func (s *querySource) query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	if s.err != nil {
		return query.Result{}, s.err
	}
	ctx, cancel := context.WithTimeout(ctx, timing.QueryTimeout)
	defer cancel()
	return s.querier.Query(ctx, expr, at)
}

// group groups samples by cluster. Without a mapping, each value of the label is the name
// of a cluster.
func (s *querySource) group(samples []query.Sample) clustermap.Groups {
	mapping := s.mapping
	if mapping == nil {
		names := make([]string, 0, len(samples))
		for _, sample := range samples {
			if name := sample.Label(s.label); name != "" {
				names = append(names, name)
			}
		}
		mapping = clustermap.FromNames(s.label, names)
	}
	return mapping.Group(samples)
}

// valuesBy returns the value of each cluster by a key of the series.
func valuesBy[K comparable](s *querySource, samples []query.Sample, keyOf func(query.Sample) K) map[K]map[string]gate.Number {
	byKey := map[K][]query.Sample{}
	for _, sample := range samples {
		key := keyOf(sample)
		byKey[key] = append(byKey[key], sample)
	}
	values := make(map[K]map[string]gate.Number, len(byKey))
	for key, samples := range byKey {
		result := &cachedResult{}
		result.setSamples(s.group(samples))
		values[key] = result.values
	}
	return values
}

// setCompleteness stores which clusters the response may lack.
func (r *cachedResult) setCompleteness(response query.Result) {
	r.incomplete = response.Partial || len(response.Failed) > 0
	if !response.Partial {
		r.failedClusters = response.Failed
	}
}

// setSamples stores the value of each cluster. Series that name no cluster, an unknown
// cluster, or a value that several clusters share count for the fleet alone.
func (r *cachedResult) setSamples(groups clustermap.Groups) {
	r.values = make(map[string]gate.Number, len(groups.Names))
	for i, name := range groups.Names {
		switch v := groups.Values[i]; v.Outcome {
		case clustermap.Absent, clustermap.Ambiguous:
		case clustermap.Found:
			r.values[name] = gate.Known(v.Value)
		case clustermap.NaN, clustermap.Infinite, clustermap.Duplicate:
			r.values[name] = gate.Number{}
		}
	}
	for _, samples := range [][]query.Sample{groups.Unlabeled, groups.Unknown, groups.Ambiguous} {
		for _, sample := range samples {
			r.unmappedValues = append(r.unmappedValues, sample.Value)
		}
	}
}
