package scoringpolicy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// TestManyPoliciesOfASlowSourceLeaveWorkersForOthers: an author creates more policies than
// there are workers, over a source that does not respond. They take a quarter of the workers,
// the others wait without one, and a policy of another source has its round.
func TestManyPoliciesOfASlowSourceLeaveWorkersForOthers(t *testing.T) {
	clock := now
	r, hub := newReconciler(t, &fakeFleet{clusters: []string{"c1"}, values: map[string]map[string]float64{"free": {"c1": 4}}}, &clock)
	stop := make(chan struct{})
	started := make(chan struct{}, maxConcurrentRounds)
	r.sources.Set(query.SourceInfo{Name: "slow", ClusterLabel: "cluster"}, query.QuerierFunc(func(context.Context, string, time.Time) (query.Result, error) {
		started <- struct{}{}
		<-stop
		return query.Result{}, &query.Error{Reason: query.ReasonTimeout, Message: "no response"}
	}))
	round := func(name string) (reconcile.Result, error) {
		return r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	var workers sync.WaitGroup
	for i := range maxConcurrentRounds {
		policy := &v1alpha1.ScoringPolicy{Spec: newSpec(fmt.Sprintf("slow_%d", i))}
		policy.Name, policy.UID, policy.Spec.SourceRef.Name = fmt.Sprintf("slow-%d", i), types.UID(fmt.Sprint(i)), "slow"
		if err := hub.Create(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		if i < maxRoundsPerSource {
			workers.Go(func() {
				if _, err := round(policy.Name); err != nil {
					t.Error(err)
				}
			})
			<-started
			continue
		}
		if result, err := round(policy.Name); err != nil || result.RequeueAfter != busySourceInterval {
			t.Fatalf("%s: %+v, %v", policy.Name, result, err)
		}
	}
	if result, err := round("fleet"); err != nil || result.RequeueAfter > 30*time.Second || r.lastRound("fleet") == nil {
		t.Errorf("a policy of another source: %+v, %v", result, err)
	}
	close(stop)
	workers.Wait()
	if len(r.running) != 0 {
		t.Errorf("running rounds after the end: %v", r.running)
	}
}

// TestScoresOfABusySourceDoNotExpire: other policies wait for a source that does not respond. A
// policy that published scores before gets no turn. Its scores stay valid during their keep time, and
// become -100 when the keep time ends. Expired scores would count as 0 in OCM.
func TestScoresOfABusySourceDoNotExpire(t *testing.T) {
	for name, restartAt := range map[string]time.Duration{"running": 0, "restarted before the first late round": 20 * time.Second, "restarted later": 100 * time.Second} {
		t.Run(name, func(t *testing.T) {
			fleet := fakeFleet{clusters: []string{"c1"}, values: map[string]map[string]float64{"free": {"c1": 4}}}
			s := newSourceRestart(t, &fleet)
			s.round(0)
			occupySource(s)
			for at := time.Second; at <= 310*time.Second; at += time.Second {
				if at == restartAt {
					s.restart()
				}
				s.clock = now.Add(at)
				if result, err := s.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}}); err != nil || result.RequeueAfter > busySourceInterval {
					t.Fatalf("after %v: %+v, %v", at, result, err)
				}
				object := &clusterv1alpha1.AddOnPlacementScore{}
				if err := s.hub.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: "fleet"}, object); err != nil {
					t.Fatal(err)
				}
				want := int32(40)
				if at >= 300*time.Second {
					want = -100
				}
				if got := object.Status.Scores[0].Value; got != want || !object.Status.ValidUntil.After(s.clock) {
					t.Fatalf("after %v: score %d, valid until %v, want %d at %v", at, got, object.Status.ValidUntil, want, s.clock)
				}
			}
			fresh := meta.FindStatusCondition(s.policy().Status.Conditions, v1alpha1.ConditionDataFresh)
			if fresh.Reason != "Timeout" || !strings.Contains(fresh.Message, "wait for") {
				t.Errorf("got %s: %s", fresh.Reason, fresh.Message)
			}
		})
	}
}

// TestShortWaitForABusySourceIsNoFailure: policies of a source are due together, so that many of
// them wait for the first ones. Their scores are not kept meanwhile.
func TestShortWaitForABusySourceIsNoFailure(t *testing.T) {
	s := newSourceRestart(t, &fakeFleet{clusters: []string{"c1"}, values: map[string]map[string]float64{"free": {"c1": 4}}})
	first := s.round(0)
	occupySource(s)
	for at := time.Second; at < 37*time.Second; at += time.Second {
		if s.round(at) != first {
			t.Fatalf("a round without the source after %v", at)
		}
	}
}

// occupySource starts as many rounds of the source as it may have. They end with the test.
func occupySource(s *sourceRestart) {
	s.t.Helper()
	var workers sync.WaitGroup
	stop, started := make(chan struct{}), make(chan struct{})
	s.t.Cleanup(func() { close(stop); workers.Wait() })
	s.setSource("prometheus", "one", query.QuerierFunc(func(_ context.Context, expr string, _ time.Time) (query.Result, error) {
		if expr == "free" {
			s.t.Error("a query is sent to the busy source")
			return query.Result{}, nil
		}
		started <- struct{}{}
		<-stop
		return query.Result{}, &query.Error{Reason: query.ReasonTimeout, Message: "no response"}
	}))
	for i := range maxRoundsPerSource {
		policy := &v1alpha1.ScoringPolicy{Spec: newSpec(fmt.Sprintf("slow_%d", i))}
		policy.Name, policy.UID, policy.Spec.SourceRef.Name = fmt.Sprintf("slow-%d", i), types.UID(fmt.Sprint(i)), "prometheus"
		if err := s.hub.Create(s.t.Context(), policy); err != nil {
			s.t.Fatal(err)
		}
		workers.Go(func() {
			if _, err := s.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKey{Name: policy.Name}}); err != nil {
				s.t.Error(err)
			}
		})
		<-started
	}
}
