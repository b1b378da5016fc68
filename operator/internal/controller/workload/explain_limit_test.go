package workload

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// blockedSource responds to no query until it is released or canceled.
type blockedSource struct {
	query.Querier
	released chan struct{}
	mu       sync.Mutex
	running  int
}

func (s *blockedSource) Query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	s.add(1)
	defer s.add(-1)
	select {
	case <-s.released:
		return s.Querier.Query(ctx, expr, at)
	case <-ctx.Done():
		return query.Result{}, ctx.Err()
	}
}

func (s *blockedSource) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += n
}

// firstQueries are the queries that an explanation runs before all others: for the sample times of the
// devices and of the quota.
const firstQueries = 2

// count returns how many queries run.
func (s *blockedSource) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// newExplainBench has workloads of different shapes in namespaces, and a source that does not respond.
func newExplainBench(t *testing.T, namespaces, workloads int) (*bench, *blockedSource) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.lead()
	for n := range namespaces {
		for i := range workloads {
			wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
			wl.Namespace, wl.Name = fmt.Sprintf("team-%d", n), fmt.Sprintf("job-%d", i)
			wl.UID = types.UID(wl.Namespace + wl.Name)
			wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": string(wl.UID)}
			wl.Status.Admission, wl.Status.Conditions = nil, nil
			b.create(wl)
		}
	}
	source := &blockedSource{Querier: b.source, released: make(chan struct{})}
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, source)
	return b, source
}

// explain requests an explanation and returns the response at its end.
func (b *bench) explain(ctx context.Context, path string) *httptest.ResponseRecorder {
	response := httptest.NewRecorder()
	b.Handler().ServeHTTP(response, httptest.NewRequestWithContext(ctx, http.MethodGet, Prefix+path, nil))
	return response
}

// A user who may read a Workload can request any number of explanations. Their queries must not keep the
// source from the decisions of others.
func TestExplanationsTakeTurns(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		namespaces, workloads int
		want                  int
	}{
		{"one namespace", 1, 20, 1},
		{"some namespaces", 3, 20, 3},
		{"many namespaces", 20, 2, maxExplanations},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, source := newExplainBench(t, tc.namespaces, tc.workloads)
				var group sync.WaitGroup
				refused := make(chan string, tc.namespaces*tc.workloads)
				for n := range tc.namespaces {
					for i := range tc.workloads {
						group.Go(func() {
							if r := b.explain(t.Context(), fmt.Sprintf("team-%d/job-%d", n, i)); r.Code != http.StatusOK {
								refused <- fmt.Sprint(r.Code, " ", r.Body)
							}
						})
					}
				}
				synctest.Wait()
				if got := source.count(); got != tc.want*firstQueries {
					t.Errorf("%d queries run at once, want those of %d explanations", got, tc.want)
				}
				close(source.released)
				group.Wait()
				if len(refused) > 0 {
					t.Errorf("%d requests failed: %s", len(refused), <-refused)
				}
				if got := len(b.explanations.slots); got != 0 {
					t.Errorf("%d namespaces are kept after their explanations", got)
				}
			})
		})
	}
}

func TestExplanationThatWaitsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, source := newExplainBench(t, 1, 2)
		var group sync.WaitGroup
		group.Go(func() { b.explain(t.Context(), "team-0/job-0") })
		synctest.Wait()
		begin := time.Now()
		got := b.explain(t.Context(), "team-0/job-1")
		if want := "the operator makes one explanation at a time for namespace team-0, and few in total: repeat the request in some seconds"; got.Code != http.StatusServiceUnavailable || strings.TrimSpace(got.Body.String()) != want {
			t.Errorf("response %d %q, want 503 %q", got.Code, got.Body, want)
		}
		if waited := time.Since(begin); waited != explanationWait {
			t.Errorf("waited for %s", waited)
		}
		close(source.released)
		group.Wait()
	})
}

// The queries of an explanation end when its reader leaves, so that the next one can begin. The source is
// not to blame: nothing is kept of such queries.
func TestQueriesOfAnExplanationEndWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, source := newExplainBench(t, 1, 1)
		ctx, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { b.explain(ctx, "team-0/job-0") })
		synctest.Wait()
		leave()
		synctest.Wait()
		if got := source.count(); got != 0 {
			t.Errorf("%d queries go on", got)
		}
		group.Wait()
		close(source.released)
		got := b.explain(t.Context(), "team-0/job-0")
		if got.Code != http.StatusOK || strings.Contains(got.Body.String(), "cancel") {
			t.Errorf("the next explanation: %d %s", got.Code, got.Body)
		}
	})
}
