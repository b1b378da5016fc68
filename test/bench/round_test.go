//go:build integration

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	expressions = 3 // distinct expressions of the policy: all of its scores but one share one
)

// policy returns the policy for a fleet of n clusters. It has so many scores, at least 3. "free" and
// "total" change with the tick.
func policy(n, scores int) *v1alpha1.ScoringPolicy {
	free := fmt.Sprintf(`free{fleet="%d"} + on () group_left () (tick %% 40)`, n)
	plain := fmt.Sprintf(`free{fleet="%d"}`, n)
	score := func(name, query string) v1alpha1.ScoreSpec {
		return v1alpha1.ScoreSpec{Name: name, Query: query, Normalize: v1alpha1.Normalize{
			Type: v1alpha1.NormalizeLinear, Linear: &v1alpha1.Linear{From: resource.MustParse("0"), To: resource.MustParse("80")},
		}}
	}
	list := []v1alpha1.ScoreSpec{score("free", free)}
	for i := range scores - 2 {
		list = append(list, score(fmt.Sprintf("plain%d", i), plain))
	}
	return &v1alpha1.ScoringPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fleet-%d-%d", n, scores)},
		Spec: v1alpha1.ScoringPolicySpec{
			SourceRef: v1alpha1.LocalReference{Name: source}, PeriodSeconds: 6, ValidForPeriods: 100,
			Freshness: &v1alpha1.Freshness{Query: fmt.Sprintf(`age{fleet="%d"}`, n)},
			Scores:    list,
			Total:     &v1alpha1.TotalSpec{Name: "total"},
		},
	}
}

// roundCost is the cost of scoring rounds of a fleet.
type roundCost struct {
	clusters, scores               int
	queries                        int64
	unchanged, changed             time.Duration // of whole rounds
	unchangedWrites, changedWrites float64
	operatorRate                   float64 // writes per second; the best of several rounds
	applyRate                      float64 // same, of a bare client with server-side apply
	patchRate                      float64 // same, of a bare client with merge patches
	memory                         float64 // resident memory of the operator, in bytes
}

// TestRoundCost prints the cost of scoring rounds, for fleets of all sizes: rounds in
// which no score changes, and rounds in which the scores of all clusters change.
func TestRoundCost(t *testing.T) {
	b := newTestbed(t)
	if err := b.api.Create(context.Background(), &v1alpha1.MetricsSource{
		ObjectMeta: metav1.ObjectMeta{Name: source}, Spec: v1alpha1.MetricsSourceSpec{URL: b.startCountingProxy(t)},
	}); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%8s  %6s  %7s  %22s  %22s  %8s  %10s  %5s  %10s  %s\n",
		"clusters", "scores", "queries", "no change: writes, time", "all change: writes, time", "writes/s", "bare apply", "ratio", "bare patch", "operator RSS")
	clusters := 0
	for _, size := range sizes {
		n := size.clusters
		b.addClusters(t, clusters, n)
		clusters = n
		c := b.measure(t, n, size.scores)
		fmt.Printf("%8d  %6d  %7d  %12.0f %10v  %13.0f %10v  %8.0f  %10.0f  %5.2f  %10.0f  %.0f MiB\n", c.clusters, c.scores, c.queries, c.unchangedWrites,
			c.unchanged.Round(time.Millisecond), c.changedWrites, c.changed.Round(time.Millisecond), c.operatorRate, c.applyRate,
			c.operatorRate/c.applyRate, c.patchRate, c.memory/(1<<20))
		if c.unchangedWrites != 0 {
			t.Errorf("%d clusters: %.0f writes although no score changed", n, c.unchangedWrites)
		}
		if c.queries != expressions {
			t.Errorf("%d clusters: %d queries for %d expressions", n, c.queries, expressions)
		}
	}
}

func (b *testbed) measure(t *testing.T, n, scores int) roundCost {
	t.Helper()
	p := policy(n, scores)
	if err := b.api.Create(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	c := roundCost{clusters: n, scores: scores}
	b.awaitUnchangedRound(t, p, n)
	writes, queries := b.writes(t), b.queries.Load()
	c.unchanged = b.awaitRound(t, p, n, nil)
	c.unchangedWrites, c.queries = b.writes(t)-writes, b.queries.Load()-queries

	c.changed = time.Hour
	for range repetitions(n) { // alternate operator and bare client, because other programs use the machine, too
		writes = b.writes(t)
		b.tick.Add(1)
		c.changed = min(c.changed, b.awaitRound(t, p, n, func(float64) bool { return b.writes(t) >= writes+float64(n) }))
		c.changedWrites = b.writes(t) - writes
		c.applyRate = max(c.applyRate, b.measureBareClient(t, p, n, applyScores))
		b.awaitUnchangedRound(t, p, n)
	}
	c.patchRate = b.measureBareClient(t, p, n, patchScores)
	c.operatorRate = float64(n) / c.changed.Seconds()
	c.memory = b.metric(t, "process_resident_memory_bytes")
	if err := b.api.Delete(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the deletion of the scores", 5*time.Minute, func() bool {
		var scores clusterv1alpha1.AddOnPlacementScoreList
		return b.api.List(context.Background(), &scores, client.Limit(1)) == nil && len(scores.Items) == 0
	})
	return c
}

// awaitUnchangedRound waits for a round without writes.
func (b *testbed) awaitUnchangedRound(t *testing.T, p *v1alpha1.ScoringPolicy, n int) {
	t.Helper()
	b.awaitRound(t, p, n, func(before float64) bool { return b.writes(t) == before && before > 0 })
}

// awaitRound waits for a round that starts after this call and that accept accepts.
// It returns the duration of the round. accept gets the number of writes before the
// round; nil accepts all rounds.
func (b *testbed) awaitRound(t *testing.T, p *v1alpha1.ScoringPolicy, n int, accept func(before float64) bool) time.Duration {
	t.Helper()
	var last v1alpha1.RoundStatus
	seen := b.lastRound(t, p).Time
	before := b.writes(t)
	waitUntil(t, "a round of all clusters", 5*time.Minute, func() bool {
		last = b.lastRound(t, p)
		if last.Time.Equal(&seen) || int(last.Scored) != n {
			return false
		}
		if accept != nil && !accept(before) {
			seen, before = last.Time, b.writes(t)
			return false
		}
		return true
	})
	return time.Duration(last.DurationMilliseconds) * time.Millisecond
}

// lastRound returns the last round in the policy's status.
func (b *testbed) lastRound(t *testing.T, p *v1alpha1.ScoringPolicy) v1alpha1.RoundStatus {
	t.Helper()
	if err := b.api.Get(context.Background(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if p.Status.LastRound == nil {
		return v1alpha1.RoundStatus{}
	}
	return *p.Status.LastRound
}

// writes returns the number of the operator's writes of scores.
func (b *testbed) writes(t *testing.T) float64 {
	t.Helper()
	return b.metric(t, "plimsoll_score_writes_total{")
}

// repetitions returns how often to measure a round of n clusters. Short rounds vary
// more.
func repetitions(n int) int { return max(2, 1000/n) }

// measureBareClient stops the operator, writes the same objects with the same
// concurrency and returns the writes per second.
func (b *testbed) measureBareClient(t *testing.T, p *v1alpha1.ScoringPolicy, n int, write func(ctx context.Context, api client.Client, cluster string, p *v1alpha1.ScoringPolicy, value int) error) float64 {
	t.Helper()
	if err := b.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.process.Signal(syscall.SIGCONT) }()
	b.turn++
	begin := time.Now()
	forEach(t, 0, n, func(ctx context.Context, i int) error {
		return write(ctx, b.api, clusterName(i), p, (i+b.turn)%100)
	})
	return float64(n) / time.Since(begin).Seconds()
}

// scoreNames returns the names of the scores in an AddOnPlacementScore.
func scoreNames(p *v1alpha1.ScoringPolicy) []string {
	names := []string{p.Spec.Total.Name}
	for _, s := range p.Spec.Scores {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// applyScores sends the same request as the operator, with the same field manager.
func applyScores(ctx context.Context, api client.Client, cluster string, p *v1alpha1.ScoringPolicy, value int) error {
	now := time.Now().UTC().Format(time.RFC3339)
	var items []any
	for _, name := range scoreNames(p) {
		items = append(items, map[string]any{"name": name, "value": int64(value)})
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1alpha1.GroupVersion.String(), "kind": "AddOnPlacementScore",
		"metadata": map[string]any{"namespace": cluster, "name": p.Name},
		"status": map[string]any{
			"scores":     items,
			"validUntil": now,
			"conditions": []any{map[string]any{"type": "DataFresh", "status": "True", "reason": "Fresh", "message": "", "lastTransitionTime": now}},
		},
	}}
	return api.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("plimsoll-scores"), client.ForceOwnership)
}

// patchScores sends the smallest patch that changes the scores.
func patchScores(ctx context.Context, api client.Client, cluster string, p *v1alpha1.ScoringPolicy, value int) error {
	obj := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: p.Name}}
	items := make([]string, 0, 4)
	for _, name := range scoreNames(p) {
		items = append(items, fmt.Sprintf(`{"name":%q,"value":%d}`, name, value))
	}
	body := `{"status":{"scores":[` + strings.Join(items, ",") + `]}}`
	return api.Status().Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(body)))
}
