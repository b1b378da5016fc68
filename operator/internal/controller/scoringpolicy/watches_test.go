package scoringpolicy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
)

// A changed source starts a round when its new client is registered. Before, the round would read the
// old server, and the next one would follow a period later.
func TestSourceChanged(t *testing.T) {
	source := func(generation, observed int64, reachable bool) *v1alpha1.MetricsSource {
		s := &v1alpha1.MetricsSource{}
		s.Generation, s.Status.ObservedGeneration = generation, observed
		d := condition.False("Timeout", "no response")
		if reachable {
			d = condition.True("QuerySucceeded", "the server responds")
		}
		condition.Set(&s.Status.Conditions, v1alpha1.ConditionReachable, d, observed)
		return s
	}
	for _, tc := range []struct {
		name          string
		before, after *v1alpha1.MetricsSource
		want          bool
	}{
		{"the spec changes", source(1, 1, true), source(2, 1, true), false},
		{"the client of the new spec is registered", source(2, 1, true), source(2, 2, true), true},
		{"the source becomes unreachable", source(2, 2, true), source(2, 2, false), true},
		{"nothing changes", source(2, 2, true), source(2, 2, true), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := sourceChanged().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// delayedQueue records the delay of each request.
type delayedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	delays map[string]time.Duration
}

func (q delayedQueue) AddAfter(request reconcile.Request, delay time.Duration) {
	q.delays[request.Name] = delay
}

// OCM reads 0 for a cluster without the AddOnPlacementScore that a Placement names. If someone deletes one,
// or if the policy that published it is deleted, the policy that publishes under its name writes it soon, and
// not a period later. What a policy deletes itself causes no round of it.
func TestDeletedScoresStartARound(t *testing.T) {
	deleting := metav1.NewTime(now)
	for _, tc := range []struct {
		name    string
		cluster string
		change  func(*v1alpha1.ScoringPolicy)
		want    map[string]time.Duration
	}{
		{"of the policy, or of one that had its name", "c1", func(*v1alpha1.ScoringPolicy) {}, map[string]time.Duration{"fleet": 5 * time.Second}},
		{"a short period", "c1", func(p *v1alpha1.ScoringPolicy) { p.Spec.PeriodSeconds = 10 }, map[string]time.Duration{"fleet": 2500 * time.Millisecond}},
		{"the name of its objects before it states another one", "c1", func(p *v1alpha1.ScoringPolicy) { p.Spec.Publish.Name = "other" }, map[string]time.Duration{}},
		{"of a cluster that the policy does not select any more", "c1", func(p *v1alpha1.ScoringPolicy) {
			p.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "b"}}
		}, map[string]time.Duration{}},
		{"of a cluster that left the hub", "gone", func(*v1alpha1.ScoringPolicy) {}, map[string]time.Duration{}},
		{"in Shadow mode", "c1", func(p *v1alpha1.ScoringPolicy) { p.Spec.Mode = v1alpha1.ModeShadow }, map[string]time.Duration{}},
		{"of a policy that is being deleted", "c1", func(p *v1alpha1.ScoringPolicy) {
			p.DeletionTimestamp, p.Finalizers = &deleting, []string{"example.com/x"}
		}, map[string]time.Duration{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy := &v1alpha1.ScoringPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: newSpec("free")}
			policy.Spec.PeriodSeconds = 86400
			tc.change(policy)
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
			cluster.Spec.HubAcceptsClient = true
			r := newWatcher(t, policy, cluster)
			queue := delayedQueue{delays: map[string]time.Duration{}}
			score := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: tc.cluster, Name: "fleet"}}
			handler := r.scoreHandler()
			handler.Create(t.Context(), event.CreateEvent{Object: score}, queue)
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: score, ObjectNew: score}, queue)
			if len(queue.delays) > 0 {
				t.Errorf("a write of scores starts a round: %v", queue.delays)
			}
			handler.Delete(t.Context(), event.DeleteEvent{Object: score}, queue)
			if diff := cmp.Diff(tc.want, queue.delays); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// newWatcher returns a reconciler that reads the objects.
func newWatcher(t *testing.T, objects ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return &Reconciler{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}
