package querycache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func (b *fixture) fit(t *testing.T, cluster string) gate.Number {
	t.Helper()
	got, _ := b.Results(t.Context(), b.gate, b.facts)
	return got[cluster].Shapes[0].Fit
}

// renewal of what is to be renewed.
func (b *fixture) renewal(t *testing.T) {
	t.Helper()
	if b.refreshQueue().Len() == 0 {
		t.Fatal("nothing is to be renewed")
	}
	b.refreshNext(t.Context(), b.refreshQueue())
}

// Within a period decisions take what is held, and the next ones what came of the renewal.
func TestHeldAnswersServeWhileTheyAreRenewed(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.fit(t, "cluster1")
	asked := len(b.source.queries)

	b.add(14 * time.Second)
	b.source.responses["floor("] = series("cluster1", 2.0)
	for range 5 {
		if got := b.fit(t, "cluster1"); got != gate.Known(3) || len(b.source.queries) != asked {
			t.Fatalf("got %v after %d more questions, want 3 as held", got, len(b.source.queries)-asked)
		}
	}
	if n := b.refreshQueue().Len(); n != 1 {
		t.Fatalf("%d shapes are to be renewed, want 1", n)
	}
	b.renewal(t)
	if got := b.fit(t, "cluster1"); got != gate.Known(2) || len(b.source.queries) != asked+5 || b.refreshQueue().Len() != 0 {
		t.Errorf("got %v after %d more questions, want 2 after 5 and nothing more to renew", got, len(b.source.queries)-asked)
	}

	b.add(15 * time.Second)
	b.source.responses["floor("] = series("cluster1", 1.0)
	if got := b.fit(t, "cluster1"); got != gate.Known(1) {
		t.Errorf("after a period without decisions %v served, want 1 as asked now", got)
	}
}

// With a long period nobody may have asked for so long that what is held would be
// past its trust, and onStale would open a gate whose source answers.
func TestNothingServesUntilItIsStale(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 3600, Freshness: v1alpha1.GateFreshness{MaxSampleAgeSeconds: 120, OnStale: v1alpha1.StaleOpen}})
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5))
	b.fit(t, "cluster1")
	asked := len(b.source.queries)
	b.add(59 * time.Second)
	if b.fit(t, "cluster1"); len(b.source.queries) != asked {
		t.Errorf("asked %d more questions while what is held can still be trusted", len(b.source.queries)-asked)
	}
	b.add(10 * time.Minute)
	b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5))
	got, _ := b.Results(t.Context(), b.gate, b.facts)
	if old := b.clock.now().Sub(got["cluster1"].SampledAt); old != 5*time.Second {
		t.Errorf("the decision rests on samples %s old, want those of 5s ago", old)
	}
}

// A source that fails holds up no decision, until long after it was last asked.
func TestFailingSourceHoldsUpNoDecision(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.err = errors.New("timeout")
	b.fit(t, "cluster1")
	if got := len(b.source.queries); got != 1 {
		t.Errorf("without sample times nothing else is of use, asked %q", b.source.queries)
	}
	b.add(30 * time.Second)
	b.facts.PodSets[0].DevicesPerPod = 4
	if _, fleet := b.Results(t.Context(), b.gate, b.facts); !strings.Contains(fleet.Problem, "timeout") || len(b.source.queries) != 1 {
		t.Errorf("problem %q after %d questions", fleet.Problem, len(b.source.queries))
	}
	b.source.err = nil
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.renewal(t)
	if got := b.fit(t, "cluster1"); got != gate.Known(3) {
		t.Errorf("once it answers %v served, want 3", got)
	}
}

// Sample times vouch only for what was asked for after them.
func TestSampleTimesBelongToTheirFit(t *testing.T) {
	sampled := func(b *fixture) time.Time {
		got, _ := b.Results(t.Context(), b.gate, b.facts)
		return got["cluster1"].SampledAt
	}
	begin := func() (*fixture, time.Time) {
		b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
		b.source.responses["floor("] = series("cluster1", 3.0)
		first := b.clock.now().Add(-5 * time.Second)
		b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5))
		if got := sampled(b); !got.Equal(first) {
			t.Fatalf("sampled %s, want %s", got, first)
		}
		b.add(10 * time.Second)
		b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5))
		return b, first
	}
	t.Run("fit of another shape is older", func(t *testing.T) {
		b, first := begin()
		small := b.facts.PodSets
		b.facts.PodSets = []shape.PodSet{{Resource: "nvidia.com/gpu", Model: "NVIDIA-L4", DevicesPerPod: 4, Pods: 1}}
		sampled(b)
		b.refreshAll()
		if got := sampled(b); !got.Equal(first.Add(10 * time.Second)) {
			t.Errorf("just asked: sampled %s, want %s", got, first.Add(10*time.Second))
		}
		b.facts.PodSets = small
		if got := sampled(b); !got.Equal(first) {
			t.Errorf("asked 10 s ago: sampled %s, want %s", got, first)
		}
	})
	t.Run("fit fails", func(t *testing.T) {
		b, first := begin()
		b.source.failing = "floor("
		b.refreshAll()
		if got := sampled(b); !got.Equal(first) {
			t.Errorf("what is held of the fit is as old as it was: sampled %s, want %s", got, first)
		}
	})
}

// A sample can't be newer than the question. One that claims to be by far would never
// grow old, and the ledger would take everything for seen.
func TestSampleTimesFromTheFuture(t *testing.T) {
	for name, tc := range map[string]struct {
		ahead float64
		want  time.Time
	}{
		"a clock that is a little ahead": {30, noon}, "milliseconds": {1e12, time.Time{}}, "a clock that is wrong": {3600, time.Time{}},
	} {
		b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
		b.source.responses["floor("] = series("cluster1", 3.0)
		b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(tc.ahead))
		b.Results(t.Context(), b.gate, b.facts)
		b.add(10 * time.Second)
		got, _ := b.Results(t.Context(), b.gate, b.facts)
		if !got["cluster1"].SampledAt.Equal(tc.want) {
			t.Errorf("%s: sampled %s, want %s", name, got["cluster1"].SampledAt, tc.want)
		}
	}
}

// The ledger forgets an entry once no held answer is too old to show it.
func TestLedgerExpiresByTheOldestAnswer(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5))
	b.fit(t, "cluster1")
	b.Ledger.Debit(b.ledgerEntry("them", "cluster1"))
	b.Ledger.MarkAdmitted("them", "cluster1", b.clock.now(), false)
	held := func() int64 { return b.Ledger.DevicesByCluster()["cluster1"] }

	b.add(10 * time.Second)
	b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5))
	small := b.facts.PodSets
	b.facts.PodSets = []shape.PodSet{{Resource: "nvidia.com/gpu", Model: "NVIDIA-L4", DevicesPerPod: 4, Pods: 1}}
	b.fit(t, "cluster1")
	b.refreshAll()
	if b.cleanUp(); held() == 0 {
		t.Error("an answer that does not show it may still serve")
	}
	b.facts.PodSets = small
	b.refreshAll()
	if b.cleanUp(); held() != 0 {
		t.Errorf("every answer shows it: %d devices held", held())
	}
}

func TestIdleHubForgets(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{})
	b.fit(t, "cluster1")
	b.Ledger.Debit(b.ledgerEntry("them", "cluster1"))
	b.add(timing.UnusedResultTTL + time.Second)
	if b.cleanUp(); len(b.results) != 0 || len(b.plans) != 0 {
		t.Errorf("%d answers and %d plans that nobody used are kept", len(b.results), len(b.plans))
	}
	if got := b.Ledger.DevicesByCluster()["cluster1"]; got != 2 {
		t.Errorf("%d devices in the ledger, want 2 until their time is up", got)
	}
	b.add(time.Hour)
	if b.cleanUp(); len(b.Ledger.DevicesByCluster()) != 0 {
		t.Errorf("devices are held past their time: %v", b.Ledger.DevicesByCluster())
	}
}

// What a gate trusts it remembers for as long, though nobody asked meanwhile, and an
// open one when it was answered last, for on that depends what it forgives.
func TestWhatCountsIsRemembered(t *testing.T) {
	for name, spec := range map[string]v1alpha1.PlacementGateSpec{
		"trusted for long":       {Freshness: v1alpha1.GateFreshness{MaxSampleAgeSeconds: 300, UnknownAfterSeconds: 300}},
		"forgiven after as long": {Freshness: v1alpha1.GateFreshness{OnStale: v1alpha1.StaleOpen, UnknownAfterSeconds: 300}},
	} {
		spec.Conditions = []v1alpha1.GateCondition{{Name: "freeze", Query: `freeze`, Scope: v1alpha1.ScopeFleet}}
		b := newFixture(spec)
		b.source.responses["floor("], b.source.responses["freeze"] = series("cluster1", 3.0), series("", 0.0)
		b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5))
		b.Results(t.Context(), b.gate, b.facts)
		b.source.err = errors.New("connection refused")
		b.add(299 * time.Second)
		b.cleanUp()
		got, fleet := b.Results(t.Context(), b.gate, b.facts)
		if !fleet.Conditions[0].EvaluatedAt.Equal(noon) || !got["cluster1"].SampledAt.Equal(noon.Add(-5*time.Second)) {
			t.Errorf("%s: 5 min after it was answered: %+v and sampled %s", name, fleet.Conditions[0], got["cluster1"].SampledAt)
		}
		b.add(301 * time.Second)
		if b.cleanUp(); len(b.results) != 0 || len(b.plans) != 0 {
			t.Errorf("%s: %d answers and %d plans that nobody used are kept", name, len(b.results), len(b.plans))
		}
	}
}

// stuck source: it says when it is asked, and answers when it is let.
type stuck struct{ asked, let chan struct{} }

func (s *stuck) Query(ctx context.Context, _ string, _ time.Time) (query.Result, error) {
	s.asked <- struct{}{}
	select {
	case <-s.let:
		return series("cluster1", 3.0), nil
	case <-ctx.Done():
		return query.Result{}, ctx.Err()
	}
}

// Eight decisions beside a source that does not answer: none waits, the question is
// asked once, and the end of the operator ends it.
func TestRenewalEndsWithTheOperator(t *testing.T) {
	before := goleak.IgnoreCurrent()
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.fit(t, "cluster1")
	source := &stuck{asked: make(chan struct{}, 100), let: make(chan struct{})}
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, source)
	b.add(10 * time.Second)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- b.Start(ctx) }()
	var decisions sync.WaitGroup
	for range 8 {
		decisions.Go(func() {
			if got := b.fit(t, "cluster1"); got != gate.Known(3) {
				t.Errorf("got %v, want 3 as held", got)
			}
		})
	}
	decisions.Wait()
	<-source.asked
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := len(source.asked); n != 0 {
		t.Errorf("%d more questions while the first one waits, want none", n)
	}
	goleak.VerifyNone(t, before)
}

// A source that does not answer holds up nobody who waits for another.
func TestHangingSourceHoldsUpNoOther(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	dead := &stuck{asked: make(chan struct{}, 100), let: make(chan struct{})}
	b.sources.Set(query.SourceInfo{Name: "dead", ClusterLabel: "cluster"}, dead)
	woken := make(chan string, 100)
	b.OnRefreshed = func(s Key, _ time.Time) { woken <- s.source }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- b.Start(ctx) }()
	for i := range 2 * refreshWorkers {
		g, f := b.gate, b.facts
		g.Spec.SourceRef.Name = "dead"
		f.Namespace = fmt.Sprint("team-", i)
		f.PodSets = []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: fmt.Sprint("model-", i), DevicesPerPod: 1, Pods: 1}}
		s := b.KeyOf(g, f)
		b.plan(s, g, f)
		b.Refresh(s, b.clock.now())
	}
	s := b.KeyOf(b.gate, b.facts)
	b.plan(s, b.gate, b.facts)
	b.Refresh(s, b.clock.now())
	if got := <-woken; got != "thanos" {
		t.Errorf("renewed first was %s", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What took long to ask is not asked again because of that.
func TestSlowRoundIsAskedOnce(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.source.fitTakes = 1100 * time.Millisecond
	b.plan(b.KeyOf(b.gate, b.facts), b.gate, b.facts)
	b.refreshAll()
	b.fit(t, "cluster1")
	if n := b.refreshQueue().Len(); n != 0 {
		t.Error("the round's own decision asks for another")
	}
}

// lists counts what is listed of the hub.
type lists struct {
	client.Client
	n int
}

func (l *lists) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l.n++
	list.(*clusterv1.ManagedClusterList).Items = []clusterv1.ManagedCluster{{}}
	return nil
}

func TestManagedClustersAreListedOnlyToAsk(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{})
	hub := &lists{}
	b.client = hub
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: string(v1alpha1.MatchLabel), Key: "prometheus"}, b.source)
	b.fit(t, "cluster1")
	listed := hub.n
	for range 5 {
		b.fit(t, "cluster1")
	}
	if listed == 0 || hub.n != listed {
		t.Errorf("listed %d times to ask, and %d times for answers that were held", listed, hub.n-listed)
	}
}
