//go:build integration

package bench

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const (
	source      = "bench"
	expressions = 3 // distinct ones of the policy; it names one of them twice
)

// policy of a fleet of n: every score moves with the tick.
func policy(n int) *v1alpha1.ScoringPolicy {
	free := fmt.Sprintf(`free{fleet="%d"} + on () group_left () (tick %% 40)`, n)
	plain := fmt.Sprintf(`free{fleet="%d"}`, n)
	score := func(name, query string) v1alpha1.ScoreSpec {
		return v1alpha1.ScoreSpec{Name: name, Query: query, Normalize: v1alpha1.Normalize{
			Type: v1alpha1.NormalizeLinear, Linear: &v1alpha1.Linear{From: resource.MustParse("0"), To: resource.MustParse("80")},
		}}
	}
	return &v1alpha1.ScoringPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fleet-%d", n)},
		Spec: v1alpha1.ScoringPolicySpec{
			SourceRef: v1alpha1.LocalReference{Name: source}, PeriodSeconds: 6, ValidForPeriods: 100,
			Freshness: &v1alpha1.Freshness{Query: fmt.Sprintf(`age{fleet="%d"}`, n)},
			Scores:    []v1alpha1.ScoreSpec{score("free", free), score("plain", plain), score("again", plain)},
			Total:     &v1alpha1.TotalSpec{Name: "total"},
		},
	}
}

// cost of the rounds of a fleet.
type cost struct {
	clusters                 int
	queries                  float64
	still, moved             time.Duration // whole rounds
	stillWrites, movedWrites float64
	operatorRate, applyRate  float64 // writes a second; the better of several
	patchRate                float64 // of a bare client that sends merge patches instead of applying
	memory                   float64 // bytes
}

// TestCostOfARound prints what rounds cost, for fleets of all sizes.
func TestCostOfARound(t *testing.T) {
	w := newWorld(t)
	if err := w.api.Create(context.Background(), &v1alpha1.MetricsSource{
		ObjectMeta: metav1.ObjectMeta{Name: source}, Spec: v1alpha1.MetricsSourceSpec{URL: w.counted(t)},
	}); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%8s  %7s  %22s  %22s  %8s  %10s  %5s  %10s  %s\n",
		"clusters", "queries", "still: writes, round", "moved: writes, round", "writes/s", "bare apply", "of it", "bare patch", "operator RSS")
	joined := 0
	for _, n := range sizes {
		w.grow(t, joined, n)
		joined = n
		c := w.measure(t, n)
		fmt.Printf("%8d  %7.0f  %11.0f %10v  %11.0f %10v  %8.0f  %10.0f  %5.2f  %10.0f  %.0f MiB\n", c.clusters, c.queries, c.stillWrites,
			c.still.Round(time.Millisecond), c.movedWrites, c.moved.Round(time.Millisecond), c.operatorRate, c.applyRate,
			c.operatorRate/c.applyRate, c.patchRate, c.memory/(1<<20))
		if c.stillWrites != 0 {
			t.Errorf("%d clusters: %.0f writes although nothing moved", n, c.stillWrites)
		}
		if c.queries != expressions {
			t.Errorf("%d clusters: %.0f queries for %d expressions", n, c.queries, expressions)
		}
	}
}

func (w *world) measure(t *testing.T, n int) cost {
	t.Helper()
	p := policy(n)
	if err := w.api.Create(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	c := cost{clusters: n}
	w.settle(t, p, n)
	before, asked := w.writes(), w.asked()
	c.still = w.next(t, p, n, nil)
	c.stillWrites, c.queries = w.writes()-before, w.asked()-asked

	c.moved = time.Hour
	for range repetitions(n) { // the better of each, by turns: others may use the machine, too
		before = w.writes()
		w.tick.Add(1)
		c.moved = min(c.moved, w.next(t, p, n, func(float64) bool { return w.writes() >= before+float64(n) }))
		c.movedWrites = w.writes() - before
		c.applyRate = max(c.applyRate, w.bare(t, p, n, applied))
		w.settle(t, p, n)
	}
	c.patchRate = w.bare(t, p, n, patched)
	c.operatorRate = float64(n) / c.moved.Seconds()
	c.memory = w.metric("process_resident_memory_bytes")
	if err := w.api.Delete(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	until(t, 5*time.Minute, func() bool {
		var left clusterv1alpha1.AddOnPlacementScoreList
		return w.api.List(context.Background(), &left, client.Limit(1)) == nil && len(left.Items) == 0
	})
	return c
}

// settle waits for a round that writes nothing.
func (w *world) settle(t *testing.T, p *v1alpha1.ScoringPolicy, n int) {
	t.Helper()
	w.next(t, p, n, func(before float64) bool { return w.writes() == before && before > 0 })
}

// next waits for a round that began after this call, and for which enough holds, and
// returns how long it took. Enough is told the writes before that round.
func (w *world) next(t *testing.T, p *v1alpha1.ScoringPolicy, n int, enough func(before float64) bool) time.Duration {
	t.Helper()
	var last v1alpha1.RoundStatus
	seen := w.round(t, p).Time
	before := w.writes()
	until(t, 5*time.Minute, func() bool {
		last = w.round(t, p)
		if last.Time.Equal(&seen) || int(last.Scored) != n {
			return false
		}
		if enough != nil && !enough(before) {
			seen, before = last.Time, w.writes()
			return false
		}
		return true
	})
	return time.Duration(last.DurationMilliseconds) * time.Millisecond
}

func (w *world) round(t *testing.T, p *v1alpha1.ScoringPolicy) v1alpha1.RoundStatus {
	t.Helper()
	if err := w.api.Get(context.Background(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if p.Status.LastRound == nil {
		return v1alpha1.RoundStatus{}
	}
	return *p.Status.LastRound
}

func (w *world) writes() float64 { return w.metric("plimsoll_score_writes_total{") }

// asked counts the policy's questions on their way to Prometheus.
func (w *world) asked() float64 { return float64(w.questions.Load()) }

// repetitions of what is measured: short rounds need more to be told from noise.
func repetitions(n int) int { return max(2, 1000/n) }

// bare writes the same objects with the same concurrency while the operator stands
// still, and returns writes a second.
func (w *world) bare(t *testing.T, p *v1alpha1.ScoringPolicy, n int, write func(ctx context.Context, api client.Client, cluster string, p *v1alpha1.ScoringPolicy, value int) error) float64 {
	t.Helper()
	if err := w.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.process.Signal(syscall.SIGCONT) }()
	w.turn++
	begin := time.Now()
	each(t, 0, n, func(ctx context.Context, i int) error {
		return write(ctx, w.api, clusterName(i), p, (i+w.turn)%100)
	})
	return float64(n) / time.Since(begin).Seconds()
}

// applied sends what the operator sends, under its name: the same work for the API
// server.
func applied(ctx context.Context, api client.Client, cluster string, p *v1alpha1.ScoringPolicy, value int) error {
	now := time.Now().UTC().Format(time.RFC3339)
	item := func(name string) any { return map[string]any{"name": name, "value": int64(value)} }
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1alpha1.GroupVersion.String(), "kind": "AddOnPlacementScore",
		"metadata": map[string]any{"namespace": cluster, "name": p.Name},
		"status": map[string]any{
			"scores":     []any{item("again"), item("free"), item("plain"), item("total")},
			"validUntil": now,
			"conditions": []any{map[string]any{"type": "DataFresh", "status": "True", "reason": "Fresh", "message": "", "lastTransitionTime": now}},
		},
	}}
	return api.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("plimsoll-scores"), client.ForceOwnership)
}

// patched sends the least that changes the scores.
func patched(ctx context.Context, api client.Client, cluster string, p *v1alpha1.ScoringPolicy, value int) error {
	obj := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: p.Name}}
	body := fmt.Sprintf(`{"status":{"scores":[{"name":"again","value":%[1]d},{"name":"free","value":%[1]d},{"name":"plain","value":%[1]d},{"name":"total","value":%[1]d}]}}`, value)
	return api.Status().Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(body)))
}
