package scoringpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/publish"
)

// indexAdder adds field indexes to a fake client.
type indexAdder struct{ builder *fake.ClientBuilder }

func (a indexAdder) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	a.builder.WithIndex(obj, field, extract)
	return nil
}

// newReconciler returns a reconciler for the policy "fleet" and its clusters, with a
// settable clock.
func newReconciler(t *testing.T, fleet *fakeFleet, clock *time.Time) (*Reconciler, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1.Install, clusterv1alpha1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	policy := &v1alpha1.ScoringPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet", UID: "uid", Generation: 1}, Spec: newSpec("free")}
	policy.Spec.SourceRef.Name = "prometheus"
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(policy).WithStatusSubresource(policy, &clusterv1alpha1.AddOnPlacementScore{})
	for _, name := range fleet.clusters {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Spec.HubAcceptsClient = true
		builder.WithObjects(c)
	}
	if err := publish.AddIndexes(t.Context(), indexAdder{builder}); err != nil {
		t.Fatal(err)
	}
	hub := builder.Build()
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "prometheus", ClusterLabel: "cluster"},
		query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
			return fleet.Query(ctx, expr, at)
		}))
	r := &Reconciler{
		client: hub, recorder: events.NewFakeRecorder(100), sources: sources, publisher: &publish.Publisher{Client: hub},
		now: func() time.Time { return *clock }, policies: map[string]*policyState{},
	}
	r.metrics = newMetrics(nil, true, r.lastRounds)
	return r, hub
}

// logLine is the part of a log line that tests compare.
type logLine struct {
	Level   int    `json:"level"`
	Message string `json:"msg"`
	Policy  string `json:"policy"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Scored  int    `json:"scored"`
	KeptN   int    `json:"kept"`
	From    string `json:"from"`
	To      string `json:"to"`
	Count   int    `json:"count"`
}

// TestReconcileLog runs rounds one after the other, and compares the log of each.
func TestReconcileLog(t *testing.T) {
	fleet, clock := healthy, now
	r, hub := newReconciler(t, &fleet, &clock)
	finished := func(level, scored, kept int) logLine {
		return logLine{Level: level, Message: "Round finished", Policy: "fleet", Scored: scored, KeptN: kept}
	}
	changed := func(conditionType, status string) logLine {
		return logLine{Message: "Condition changed", Policy: "fleet", Type: conditionType, Status: status}
	}
	update := func(change func(*v1alpha1.ScoringPolicy)) {
		p := &v1alpha1.ScoringPolicy{}
		if err := hub.Get(t.Context(), client.ObjectKey{Name: "fleet"}, p); err != nil {
			t.Fatal(err)
		}
		change(p)
		if err := hub.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name    string
		prepare func()
		want    []logLine
	}{
		{"the first round logs exactly one info line", func() {}, []logLine{finished(0, 3, 0)}},
		{"a round too soon is skipped at debug", func() { clock = clock.Add(-29500 * time.Millisecond) }, []logLine{{Level: 1, Message: "Round skipped"}}},
		{"an unchanged round logs at debug", func() { clock = clock.Add(29500 * time.Millisecond) }, []logLine{finished(1, 3, 0)}},
		{"renewed validity is no change", func() { clock = clock.Add(30 * time.Second) }, []logLine{finished(1, 3, 0)}},
		{"a changed score logs at info", func() {
			fleet.values = map[string]map[string]float64{"free": {"c1": 9, "c2": 2, "c3": 3}}
		}, []logLine{finished(0, 3, 0)}},
		{"a failing source changes conditions", func() {
			fleet.failures = map[string]error{"free": errors.New("connection refused")}
		}, []logLine{finished(0, 0, 3), changed("DataFresh", "False"), changed("Ready", "False")}},
		{"a source that recovers changes conditions", func() { fleet.failures = nil },
			[]logLine{finished(0, 3, 0), changed("DataFresh", "True"), changed("Ready", "True")}},
		{"Shadow mode deletes the scores", func() {
			update(func(p *v1alpha1.ScoringPolicy) { p.Spec.Mode, p.Generation = v1alpha1.ModeShadow, 2 })
		}, []logLine{
			{Message: "Mode changed", Policy: "fleet", From: "Enforce", To: "Shadow"}, finished(0, 3, 0),
			{Message: "Scores deleted", Policy: "fleet", Count: 3}, changed("Published", "False"), changed("Ready", "True"),
		}},
		{"an invalid spec is logged once", func() {
			update(func(p *v1alpha1.ScoringPolicy) {
				p.Spec.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "gpu", Operator: "Maybe"}}}
			})
		}, []logLine{{Message: "Spec can't be evaluated", Policy: "fleet"}}},
		{"an unchanged invalid spec is silent", func() {}, nil},
		{"a deleted policy", func() {
			if err := hub.Delete(t.Context(), &v1alpha1.ScoringPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}); err != nil {
				t.Fatal(err)
			}
		}, []logLine{{Message: "Policy deleted", Policy: "fleet"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock = clock.Add(30 * time.Second)
			tc.prepare()
			var lines []logLine
			logger := funcr.NewJSON(func(text string) {
				line := logLine{}
				if err := json.Unmarshal([]byte(text), &line); err != nil {
					t.Errorf("%v: %s", err, text)
				}
				lines = append(lines, line)
			}, funcr.Options{Verbosity: 1})
			request := reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}}
			if _, err := r.Reconcile(log.IntoContext(t.Context(), logger), request); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lines); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}
