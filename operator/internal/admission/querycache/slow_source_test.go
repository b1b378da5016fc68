package querycache

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// slowSource takes the same time for each query, however many run.
type slowSource struct{ latency time.Duration }

func (s slowSource) Query(ctx context.Context, _ string, at time.Time) (query.Result, error) {
	select {
	case <-time.After(s.latency):
	case <-ctx.Done():
		return query.Result{}, ctx.Err()
	}
	return series("cluster1", float64(at.Unix()), "cluster2", float64(at.Unix())), nil
}

// The time to refresh the results of a gate follows from the number of shapes and the time that
// the source takes for a query: operator/docs/scale.md has this table. Time in this test is
// synthetic, so the results do not depend on the machine.
func TestTimeToRefreshAGate(t *testing.T) {
	for _, tc := range []struct {
		shapes  int
		latency time.Duration
		want    time.Duration
	}{
		{1, 10 * time.Millisecond, 30 * time.Millisecond},
		{1, time.Second, 3 * time.Second},
		{1, 5 * time.Second, 15 * time.Second},
		{50, 10 * time.Millisecond, 150 * time.Millisecond},
		{50, time.Second, 15 * time.Second},
		{50, 5 * time.Second, 75 * time.Second},
		{500, 10 * time.Millisecond, 1270 * time.Millisecond},
		{500, time.Second, 127 * time.Second},
	} {
		t.Run(fmt.Sprintf("%d shapes, %s", tc.shapes, tc.latency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := refreshTime(t, tc.shapes, tc.latency).Round(10 * time.Millisecond); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			})
		})
	}
}

// refreshTime returns the time to refresh all shapes of a gate once.
func refreshTime(t *testing.T, shapes int, latency time.Duration) time.Duration {
	t.Helper()
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, slowSource{latency})
	f.Cache = New(f.sources, ledger.New(time.Second, time.Hour), nil, time.Now)
	refreshed := make(chan struct{}, shapes)
	f.OnRefreshed(func(gatestate.QueryKey, time.Time) { refreshed <- struct{}{} })
	stop := f.start(t)
	defer stop()
	begin := time.Now()
	for i := range shapes {
		facts := f.facts
		facts.PodSets = podSets("NVIDIA-L4", int64(i+1))
		key := f.KeyOf(f.gate, facts)
		f.plan(key, f.gate, facts)
		f.Refresh(key, begin)
	}
	for range shapes {
		<-refreshed
	}
	return time.Since(begin)
}
