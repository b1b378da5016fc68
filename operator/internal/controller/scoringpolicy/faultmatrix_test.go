package scoringpolicy

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/publish"
)

var update = flag.Bool("update", false, "write the fault matrix into operator/docs/scoring.md")

// faultSeconds is the duration of each fault.
const faultSeconds = 600

const (
	matrixDocument = "../../../docs/scoring.md"
	matrixStart    = "<!-- fault matrix: go test ./operator/internal/controller/scoringpolicy -run TestFaultMatrix -update -->\n"
	matrixEnd      = "<!-- end of fault matrix -->\n"
)

// fault is one way in which metrics fail. c4 is always affected. c1 is not, unless the
// fault affects all clusters.
type fault struct {
	name string
	// response of a source that fails as a whole. It is nil for the other faults.
	response http.HandlerFunc
	// refused means that the source does not accept connections.
	refused bool
	// silent clusters have no series.
	silent []string
	// partial means that a store of Thanos does not respond, so that the sum of c4 lacks
	// half of its series.
	partial bool
	// timeout of a query.
	timeout time.Duration
}

var faults = []fault{
	{name: "source down", refused: true},
	{name: "source slow", response: respondNever, timeout: 50 * time.Millisecond},
	{name: "source responds 429", response: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }},
	{name: "source responds with HTML", response: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Log in</html>") }},
	{name: "half of the stores gone", partial: true},
	{name: "one cluster silent", silent: []string{"c4"}},
	{name: "three of four clusters silent", silent: []string{"c2", "c3", "c4"}},
}

// respondNever waits until the client gives up. A server notices that only after it has read
// the request.
func respondNever(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// faultyFleet is a source whose fault can be switched on.
type faultyFleet struct {
	fault  fault
	active bool
	http   *query.Client // returns the fault
}

// Query implements query.Querier. Before the fault, each cluster has the value 4, and
// afterwards 5, so that a fresh score differs from a kept one.
func (f *faultyFleet) Query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	if f.active && (f.fault.response != nil || f.fault.refused) {
		return f.http.Query(ctx, expr, at)
	}
	value, series := 4.0, 8.0
	if f.active {
		value = 5
	}
	result := query.Result{Partial: f.active && f.fault.partial}
	for _, cluster := range []string{"c1", "c2", "c3", "c4"} {
		v := value
		if strings.Contains(expr, "count") {
			v = series
		}
		if f.active && f.fault.partial && cluster == "c4" {
			v /= 2
		}
		if f.active && strings.Contains(strings.Join(f.fault.silent, " "), cluster) {
			continue
		}
		result.Samples = append(result.Samples, query.Sample{Labels: map[string]string{"cluster": cluster}, Value: v})
	}
	return result, nil
}

// faultSimulation runs rounds of a policy against a faulty source.
type faultSimulation struct {
	t     *testing.T
	fleet *faultyFleet
	clock time.Time
	r     *Reconciler
	hub   client.Client
}

func newFaultSimulation(t *testing.T, f fault) *faultSimulation {
	t.Helper()
	s := &faultSimulation{t: t, clock: now, fleet: &faultyFleet{fault: f}}
	server := httptest.NewServer(f.response)
	t.Cleanup(server.Close)
	if f.refused {
		server.Close()
	}
	source, err := query.New(query.Config{
		Name: "prometheus", URL: server.URL, AllowLoopback: true, Timeout: cmp.Or(f.timeout, 2*time.Second), MaxConcurrency: 4, QueriesPerSecond: 1000, MaxResponseBytes: 1 << 20, MaxSeries: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	s.fleet.http = source
	s.r, s.hub = newReconciler(t, &fakeFleet{clusters: []string{"c1", "c2", "c3", "c4"}}, &s.clock)
	s.r.sources.Set(query.SourceInfo{Name: "prometheus", ClusterLabel: "cluster", Partial: f.partial}, s.fleet)
	s.r.publisher = &publish.Publisher{Client: recordWriteTimes(s.hub.(client.WithWatch), &s.clock)}
	return s
}

// recordWriteTimes adds the times of the writes to the objects, by the clock of the
// simulation: the fake API server uses the real one.
func recordWriteTimes(hub client.WithWatch, clock *time.Time) client.Client {
	var mu sync.Mutex // writes run in parallel
	written, updated := map[string]metav1.Time{}, map[string]metav1.Time{}
	update := func(object client.Object) {
		mu.Lock()
		defer mu.Unlock()
		updated[object.GetNamespace()] = metav1.NewTime(*clock)
	}
	return interceptor.NewClient(hub, interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, subResource string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if object, ok := obj.(interface{ GetNamespace() string }); ok {
				mu.Lock()
				written[object.GetNamespace()] = metav1.NewTime(*clock)
				mu.Unlock()
			}
			return c.SubResource(subResource).Apply(ctx, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			update(object)
			return c.Create(ctx, object, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			update(object)
			return c.Patch(ctx, object, patch, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if scores, ok := list.(*clusterv1alpha1.AddOnPlacementScoreList); ok {
				for i := range scores.Items {
					at, updatedAt := written[scores.Items[i].Namespace], updated[scores.Items[i].Namespace]
					scores.Items[i].ManagedFields = []metav1.ManagedFieldsEntry{
						{Manager: string(publish.FieldOwner), Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", Time: &at},
						{Manager: string(publish.FieldOwner), Operation: metav1.ManagedFieldsOperationUpdate, Time: &updatedAt},
					}
				}
			}
			return err
		},
	})
}

// round runs a round at a time after the start of the fault in seconds.
func (s *faultSimulation) round(seconds int) {
	s.t.Helper()
	s.clock = now.Add(time.Minute + time.Duration(seconds)*time.Second)
	s.fleet.active = seconds >= 0 && seconds < faultSeconds
	if _, err := s.r.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}}); err != nil {
		s.t.Fatal(err)
	}
}

// restart forgets everything that the process has in memory.
func (s *faultSimulation) restart() { s.r.policies = map[string]*policyState{} }

// show returns the score and its state for c1 and for c4.
func (s *faultSimulation) show() string {
	s.t.Helper()
	return s.score("c1") + " / " + s.score("c4")
}

func (s *faultSimulation) score(cluster string) string {
	s.t.Helper()
	object := &clusterv1alpha1.AddOnPlacementScore{}
	if err := s.hub.Get(s.t.Context(), client.ObjectKey{Namespace: cluster, Name: "fleet"}, object); err != nil {
		s.t.Fatal(err)
	}
	if !object.Status.ValidUntil.After(s.clock) {
		s.t.Errorf("%s: the scores of %s expired at %v, before %v", s.fleet.fault.name, cluster, object.Status.ValidUntil, s.clock)
	}
	state := "Scored"
	if c := meta.FindStatusCondition(object.Status.Conditions, "score.plimsoll.dev/a"); c != nil {
		state = c.Reason
	}
	for _, item := range object.Status.Scores {
		if item.Name == "a" {
			return fmt.Sprintf("%d %s", item.Value, state)
		}
	}
	return "none"
}

// reason returns the reason of the policy's condition DataFresh.
func (s *faultSimulation) reason() string {
	s.t.Helper()
	policy := &v1alpha1.ScoringPolicy{}
	if err := s.hub.Get(s.t.Context(), client.ObjectKey{Name: "fleet"}, policy); err != nil {
		s.t.Fatal(err)
	}
	return meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDataFresh).Reason
}

// row simulates a fault, without a restart and with one during and after `keepLastSeconds`. The last
// round before the fault is 30 seconds old.
func (f fault) row(t *testing.T) string {
	s := newFaultSimulation(t, f)
	s.round(-60)
	s.round(-30)
	s.round(0)
	s.round(60)
	during, reason := s.show(), s.reason()
	s.round(150)
	s.round(270)
	after, reasonAfter := s.show(), s.reason()
	s.restart()
	s.round(300)
	restartAfter := s.show()
	s.round(faultSeconds)
	recovered := s.reason()

	s = newFaultSimulation(t, f)
	s.round(-60)
	s.round(-30)
	s.round(0)
	s.restart()
	s.round(60)
	restartDuring := s.show()
	s.round(330)
	restartEnd := s.show()
	if recovered != "Fresh" || restartEnd != after {
		t.Errorf("%s: after the fault %s, after `keepLastSeconds` with a restart %q, without %q", f.name, recovered, restartEnd, after)
	}
	return "| " + strings.Join([]string{f.name, during, reason, restartDuring, after, reasonAfter, restartAfter}, " | ") + " |\n"
}

// TestFaultMatrix generates the fault matrix of the documentation.
func TestFaultMatrix(t *testing.T) {
	var table strings.Builder
	table.WriteString(matrixStart)
	table.WriteString("| fault | during `keepLastSeconds` | `DataFresh` | restart during `keepLastSeconds` | after `keepLastSeconds` | `DataFresh` | restart after `keepLastSeconds` |\n|---|---|---|---|---|---|---|\n")
	for _, f := range faults {
		table.WriteString(f.row(t))
	}
	table.WriteString(matrixEnd)
	document, err := os.ReadFile(matrixDocument)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(document), matrixStart)
	_, after, foundEnd := strings.Cut(rest, matrixEnd)
	if !found || !foundEnd {
		t.Fatalf("%s has no fault matrix", matrixDocument)
	}
	want := before + table.String() + after
	switch {
	case string(document) == want:
	case *update:
		if err := os.WriteFile(matrixDocument, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the fault matrix has changed; run the test with -update:\n%s", table.String())
	}
}
