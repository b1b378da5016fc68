package scoringpolicy

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// countingSource counts its queries by expression and responds after release is closed.
type countingSource struct {
	mu      sync.Mutex
	sent    map[string]int
	err     error
	release chan struct{}
}

func (s *countingSource) Query(ctx context.Context, expr string, _ time.Time) (query.Result, error) {
	s.mu.Lock()
	s.sent[expr]++
	s.mu.Unlock()
	if s.release != nil {
		select {
		case <-s.release:
		case <-ctx.Done():
			return query.Result{}, &query.Error{Reason: query.ReasonCanceled, Message: "canceled"}
		}
	}
	return query.Result{Samples: []query.Sample{{Value: 1}}, Infos: make([]string, 1, 8)}, s.err
}

func TestAQueryOfSeveralPoliciesIsSentOnce(t *testing.T) {
	source := &countingSource{sent: map[string]int{}}
	var shared sharedQueries
	policies := []string{"a", "b", "c"}
	var queriers []query.Querier
	for _, name := range policies {
		queriers = append(queriers, shared.querier(name, "thanos", []string{"free", "free", "own " + name}, source))
	}
	for period := range 2 {
		at := now.Add(time.Duration(period) * 30 * time.Second)
		for i, name := range policies {
			for _, expr := range []string{"free", "own " + name} {
				if response, err := queriers[i].Query(t.Context(), expr, at); err != nil || len(response.Samples) != 1 || expr == "free" && cap(response.Infos) != 1 {
					t.Errorf("%s: %+v %v", name, response, err)
				}
			}
		}
		if source.sent["free"] != period+1 || source.sent["own a"] != period+1 {
			t.Errorf("after %d periods the source received %v", period+1, source.sent)
		}
		if len(shared.results) != 0 {
			t.Errorf("all policies have read the results, %d are still in memory", len(shared.results))
		}
	}
	// Another set of clusters is another query if each cluster has its own endpoint.
	for i, names := range [][]string{{"c1"}, {"c2"}} {
		_, _ = queriers[i].Query(query.ForClusters(t.Context(), names), "free", now.Add(time.Hour))
	}
	if source.sent["free"] != 4 {
		t.Errorf("%d queries, want one for each set of clusters", source.sent["free"]-2)
	}
	for _, name := range policies {
		shared.remove(name)
	}
	if len(shared.policies)+len(shared.users)+len(shared.results) != 0 {
		t.Errorf("deleted policies remain: %v %v", shared.policies, shared.users)
	}
}

// TestAQueryThatAPolicyDoesNotShareIsSent: two policies share a query, and a third one has it with
// nameFrom.
func TestAQueryThatAPolicyDoesNotShareIsSent(t *testing.T) {
	source := &countingSource{sent: map[string]int{}}
	var shared sharedQueries
	first := shared.querier("a", "thanos", []string{"free"}, source)
	second := shared.querier("b", "thanos", []string{"free"}, source)
	named := shared.querier("c", "thanos", nil, source)
	for _, step := range []struct {
		name string
		from query.Querier
		sent int
	}{{"the first policy", first, 1}, {"the policy with nameFrom", named, 2}, {"the second policy", second, 2}} {
		if _, err := step.from.Query(t.Context(), "free", now); err != nil {
			t.Fatal(err)
		}
		if source.sent["free"] != step.sent {
			t.Errorf("after %s: %d queries sent, want %d", step.name, source.sent["free"], step.sent)
		}
	}
}

func TestAFailedQueryIsSharedAndACanceledOneIsNot(t *testing.T) {
	source := &countingSource{sent: map[string]int{}, err: &query.Error{Reason: query.ReasonUnavailable}, release: make(chan struct{})}
	var shared sharedQueries
	first := shared.querier("a", "thanos", []string{"free"}, source)
	second := shared.querier("b", "thanos", []string{"free"}, source)
	run := func(ctx context.Context, q query.Querier) chan error {
		errs := make(chan error, 1)
		go func() { _, err := q.Query(ctx, "free", now); errs <- err }()
		return errs
	}
	canceled, cancel := context.WithCancel(t.Context())
	one := run(canceled, first)
	cancel()
	if err := <-one; query.ReasonOf(err) != query.ReasonCanceled {
		t.Fatal(err)
	}
	close(source.release)
	var failure *query.Error
	if err := <-run(t.Context(), second); !errors.As(err, &failure) || failure.Reason != query.ReasonUnavailable {
		t.Errorf("the second policy gets %v, want its own failure", err)
	}
	source.sent["free"] = 0
	if _, err := first.Query(t.Context(), "free", now.Add(time.Minute)); query.ReasonOf(err) != query.ReasonUnavailable {
		t.Error(err)
	}
	if _, err := second.Query(t.Context(), "free", now.Add(time.Minute)); query.ReasonOf(err) != query.ReasonUnavailable || source.sent["free"] != 1 {
		t.Errorf("%v after %d queries, want the failure of the first", err, source.sent["free"])
	}
}
