package scoringpolicy

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestTimeToNextRound: the next round starts when the earliest keep time ends, or when the policy
// is due.
func TestTimeToNextRound(t *testing.T) {
	policy := &v1alpha1.ScoringPolicy{}
	policy.Spec.SourceRef.Name = "thanos"
	due := lastDue(policy, now)
	fresh := healthy.round(newSpec("free"), nil, due)
	silent := fakeFleet{clusters: healthy.clusters, values: map[string]map[string]float64{"free": {"c1": 1, "c2": 2}}}
	for _, tc := range []struct {
		name     string
		round    *completedRound
		at, want time.Duration // since the policy was due
	}{
		{"no keep time", fresh, 0, 30 * time.Second},
		{"a round that took time", fresh, 7 * time.Second, 23 * time.Second},
		{"a keep time that ends later", silent.round(newSpec("free"), fresh.report.Result, due.Add(30*time.Second)), 30 * time.Second, 30 * time.Second},
		{"a keep time that ends earlier", silent.round(newSpec("free"), fresh.report.Result, due.Add(290*time.Second)), 290 * time.Second, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := timeToNextRound(policy, tc.round, due.Add(tc.at)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestSpecChangedWhileNoOperatorRan: after a restart, damping continues from the published value. A
// value of a new spec counts undamped.
func TestSpecChangedWhileNoOperatorRan(t *testing.T) {
	for _, tc := range []struct {
		name       string
		generation int64
		want       int32
	}{
		{"the same spec", 1, 10},
		{"another spec", 2, 13},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fleet, clock := healthy, now
			r, hub := newReconciler(t, &fleet, &clock)
			policy := &v1alpha1.ScoringPolicy{}
			set := func(generation int64) {
				if err := hub.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy); err != nil {
					t.Fatal(err)
				}
				policy.Spec.Scores[0].Damping.Deadband, policy.Generation = 25, generation
				if err := hub.Update(t.Context(), policy); err != nil {
					t.Fatal(err)
				}
			}
			run := func() {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}}); err != nil {
					t.Fatal(err)
				}
			}
			set(1)
			run()
			set(tc.generation)
			r.policies, clock = map[string]*policyState{}, now.Add(time.Minute) // a new process
			fleet.values = map[string]map[string]float64{"free": {"c1": 1.3, "c2": 2, "c3": 3}}
			run()
			if got := r.lastRound("fleet").report.Result.Row(0)[0].Value; got != tc.want {
				t.Errorf("published %d, want %d", got, tc.want)
			}
		})
	}
}
