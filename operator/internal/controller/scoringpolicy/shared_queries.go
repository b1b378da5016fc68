package scoringpolicy

import (
	"context"
	"slices"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// sharedQueries sends a query once if several policies of a source evaluate it at the same
// timestamp and for the same clusters. The zero value is ready to use.
type sharedQueries struct {
	mu       sync.Mutex
	policies map[string][]queryKey // by policy name
	users    map[queryKey]int      // number of policies that contain the query
	results  map[queryKey]*sharedResult
}

// queryKey identifies a query of a source.
type queryKey struct{ source, expr string }

// sharedResult is the most recent result of a query that several policies contain. done is
// closed when response and err are set.
type sharedResult struct {
	client   *query.Client
	at       time.Time
	clusters []string
	reads    int // number of policies that have read the result
	done     chan struct{}
	response query.Result
	err      error
}

// querier returns a client for the queries of a policy. It shares the results of exprs, which
// replace those of the policy before. Other queries are sent even if other policies share them:
// the result of a query with nameFrom needs labels that shared results lack.
func (s *sharedQueries) querier(policy, source string, exprs []string, client query.Querier) query.Querier {
	keys := make([]queryKey, 0, len(exprs))
	for _, expr := range exprs {
		if key := (queryKey{source, expr}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(policy, keys)
	return query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
		if key := (queryKey{source, expr}); slices.Contains(keys, key) {
			return s.query(ctx, client, key, at)
		}
		return client.Query(ctx, expr, at)
	})
}

// remove forgets the queries of a deleted policy.
func (s *sharedQueries) remove(policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(policy, nil)
}

// replace sets the queries of a policy. The caller must hold s.mu.
func (s *sharedQueries) replace(policy string, keys []queryKey) {
	if s.policies == nil {
		s.policies, s.users, s.results = map[string][]queryKey{}, map[queryKey]int{}, map[queryKey]*sharedResult{}
	}
	for _, key := range keys {
		s.users[key]++
	}
	for _, key := range s.policies[policy] {
		if s.users[key]--; s.users[key] < 2 {
			delete(s.results, key)
		}
		if s.users[key] == 0 {
			delete(s.users, key)
		}
	}
	if s.policies[policy] = keys; len(keys) == 0 {
		delete(s.policies, policy)
	}
}

// query returns the result of another policy for the same query, and otherwise sends it.
func (s *sharedQueries) query(ctx context.Context, client query.Querier, key queryKey, at time.Time) (query.Result, error) {
	result, isFirst := s.result(ctx, client, key, at)
	switch {
	case result == nil:
		return client.Query(ctx, key.expr, at)
	case isFirst:
		result.response, result.err = client.Query(ctx, key.expr, at)
		close(result.done)
		return result.read()
	}
	select {
	case <-result.done:
	case <-ctx.Done():
		return client.Query(ctx, key.expr, at) // fails with the reason of the context
	}
	if query.ReasonOf(result.err) == query.ReasonCanceled {
		return client.Query(ctx, key.expr, at)
	}
	return result.read()
}

// result returns the shared result of a query. isFirst is true if the caller must send the
// query. The result is nil if only one policy contains the query. The result is dropped
// after all its policies have read it.
func (s *sharedQueries) result(ctx context.Context, client query.Querier, key queryKey, at time.Time) (result *sharedResult, isFirst bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[key] < 2 {
		return nil, false
	}
	clusters := query.ClustersOf(ctx)
	current, _ := client.(*query.Client) // nil for a source that can't be used
	result = s.results[key]
	if result == nil || result.client != current || !result.at.Equal(at) || !slices.Equal(result.clusters, clusters) {
		result, isFirst = &sharedResult{client: current, at: at, clusters: clusters, done: make(chan struct{})}, true
		s.results[key] = result
	}
	if result.reads++; result.reads >= s.users[key] {
		delete(s.results, key)
	}
	return result, isFirst
}

// read returns the result. The caller may append to its warnings and infos.
func (r *sharedResult) read() (query.Result, error) {
	response := r.response
	response.Warnings, response.Infos = slices.Clip(response.Warnings), slices.Clip(response.Infos)
	return response, r.err
}
