package scoringpolicy

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/internal/query"
)

// recreate deletes the ManagedCluster c1 and creates another one of the same name.
func (s *sourceRestart) recreate(at time.Time) {
	s.t.Helper()
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	if err := s.hub.Delete(s.t.Context(), c.DeepCopy()); err != nil {
		s.t.Fatal(err)
	}
	c.UID, c.CreationTimestamp, c.Spec.HubAcceptsClient = "second", metav1.NewTime(at), true
	if err := s.hub.Create(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
}

// TestRecreatedClusterHasNoHistory: a cluster that is deleted and created again between two rounds
// has the name of its predecessor, and neither its score nor its hold. Its first value counts
// undamped.
func TestRecreatedClusterHasNoHistory(t *testing.T) {
	for name, restarts := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			fleet := healthy
			s := newSourceRestart(t, &fleet)
			policy := s.policy()
			policy.Spec.Scores[0].Damping.HalfLifeSeconds = 3600
			if err := s.hub.Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			s.round(0)
			s.round(30 * time.Second)
			s.recreate(now.Add(40 * time.Second))
			if restarts {
				s.restart()
			}
			fleet = fakeFleet{failures: map[string]error{"free": errors.New("down")}}
			done := s.round(60 * time.Second)
			for cluster, want := range map[int]string{0: "Omitted", 1: "Held"} {
				if got := done.report.Result.Row(cluster)[0].State.String(); got != want {
					t.Errorf("the query fails: cluster %d is %s, want %s", cluster, got, want)
				}
			}
			if got := s.published(); got != "none" {
				t.Errorf("published %s of the predecessor", got)
			}
			fleet = fakeFleet{values: map[string]map[string]float64{"free": {"c1": 9, "c2": 2, "c3": 3}}}
			if got := s.round(90 * time.Second).report.Result.Row(0)[0].Value; got != 90 {
				t.Errorf("first value %d, want 90", got)
			}
			// The state of the new cluster survives a restart.
			s.restart()
			fleet = fakeFleet{failures: map[string]error{"free": errors.New("down")}}
			if s.round(120 * time.Second); s.published() != "Held" {
				t.Errorf("after a restart %s, want Held", s.published())
			}
		})
	}
}

// TestRecreatedClusterHasNoSeriesCount: the predecessor had fewer series. Its count would make a
// partial response complete.
func TestRecreatedClusterHasNoSeriesCount(t *testing.T) {
	for name, restarts := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			fleet, partial := healthy, false
			s := newSourceRestart(t, &fleet)
			s.setSource("prometheus", "one", query.QuerierFunc(func(ctx context.Context, _ string, at time.Time) (query.Result, error) {
				result, err := fleet.Query(ctx, "free", at)
				result.Partial = partial
				return result, err
			}))
			s.round(0)
			s.recreate(now.Add(10 * time.Second))
			if restarts {
				s.restart()
			}
			partial = true
			done := s.round(30 * time.Second)
			for cluster, want := range map[int]string{0: "Failed", 1: "OK"} {
				if got := done.report.Result.Row(cluster)[0].Outcome.String(); got != want {
					t.Errorf("cluster %d: %s, want %s", cluster, got, want)
				}
			}
			// A write of the scores does not make the count one of the new cluster.
			s.restart()
			if got := s.round(60 * time.Second).report.Result.Row(0)[0].Outcome.String(); got != "Failed" {
				t.Errorf("after a restart: %s", got)
			}
			partial = false
			fleet = fakeFleet{values: map[string]map[string]float64{"free": {"c1": 9, "c2": 2, "c3": 3}}}
			s.round(90 * time.Second)
			s.restart()
			partial = true
			if got := s.round(120 * time.Second).report.Result.Row(0)[0].Outcome.String(); got != "OK" {
				t.Errorf("after a complete response and a restart: %s", got)
			}
		})
	}
}
