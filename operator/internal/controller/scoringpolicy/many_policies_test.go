package scoringpolicy

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
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
