package scoringpolicy

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
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
// has the name of its predecessor, and neither its score nor its keep time. Its first value counts
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
			for cluster, want := range map[int]string{0: "Omitted", 1: "Kept"} {
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
			if s.round(120 * time.Second); s.published() != "Kept" {
				t.Errorf("after a restart %s, want Kept", s.published())
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

// relabel sets the label of a ManagedCluster that series name it by. An empty value removes the label.
func (s *sourceRestart) relabel(cluster, site string) {
	s.t.Helper()
	c := &clusterv1.ManagedCluster{}
	if err := s.hub.Get(s.t.Context(), client.ObjectKey{Name: cluster}, c); err != nil {
		s.t.Fatal(err)
	}
	c.Labels = map[string]string{"site": site}
	if site == "" {
		c.Labels = nil
	}
	if err := s.hub.Update(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
}

// setSourceByLabel sets a source whose series name clusters by their label site.
func (s *sourceRestart) setSourceByLabel(source query.Querier) {
	s.r.sources.Set(query.SourceInfo{Name: "prometheus", Settings: "one", ClusterLabel: "cluster", Match: "Label", Key: "site", Partial: true}, source)
}

// TestClusterWithOtherSeriesHasNoHistory: the label of a cluster was wrong, or names the series of a cluster
// that was installed in its place. Neither the keep time of the former series nor
// their mean and their number belong to it. A label that is missing for a while says nothing.
func TestClusterWithOtherSeriesHasNoHistory(t *testing.T) {
	for name, tc := range map[string]struct {
		labels []string // of c1, one after the other; each but the last with a round that fails
		kept   string   // state of c1 while the query fails
		first  int32    // score of the first value, 9 of 10 after 1
		count  string   // outcome of a partial response with as many series as before
	}{
		"the same label":                         {[]string{"a"}, "Kept", 11, "OK"},
		"another label":                          {[]string{"b"}, "Omitted", 90, "Failed"},
		"the label was missing for a while":      {[]string{"", "a"}, "Kept", 11, "OK"},
		"another label, after none for a while":  {[]string{"", "b"}, "Omitted", 90, "Failed"},
		"another label, and the first one again": {[]string{"b", "a"}, "Omitted", 90, "Failed"},
		"no label yet":                           {[]string{""}, "Kept", 10, "OK"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet, partial := fakeFleet{clusters: healthy.clusters}, false
			s := newSourceRestart(t, &fleet)
			s.setSourceByLabel(query.QuerierFunc(func(ctx context.Context, _ string, at time.Time) (query.Result, error) {
				result, err := fleet.Query(ctx, "free", at)
				result.Partial = partial
				return result, err
			}))
			respond := func(values map[string]float64) {
				fleet = fakeFleet{values: map[string]map[string]float64{"free": values}}
			}
			policy := s.policy()
			policy.Spec.Scores[0].Damping.HalfLifeSeconds = 3600
			if err := s.hub.Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			for cluster, site := range map[string]string{"c1": "a", "c2": "c2", "c3": "c3"} {
				s.relabel(cluster, site)
			}
			respond(map[string]float64{"a": 1, "c2": 2, "c3": 3})
			s.round(0)
			fleet = fakeFleet{failures: map[string]error{"free": errors.New("down")}}
			var done *completedRound
			for i, label := range tc.labels {
				s.relabel("c1", label)
				done = s.round(time.Duration(20+10*i) * time.Second)
			}
			if got := done.report.Result.Row(0)[0].State.String(); got != tc.kept {
				t.Errorf("the query fails: c1 is %s, want %s", got, tc.kept)
			}
			if got := done.report.Result.Row(1)[0].State.String(); got != "Kept" {
				t.Errorf("the query fails: c2 is %s", got)
			}
			last := tc.labels[len(tc.labels)-1]
			respond(map[string]float64{last: 9, "c2": 2, "c3": 3})
			partial = true
			if got := s.round(50 * time.Second).report.Result.Row(0)[0].Outcome.String(); got != tc.count && last != "" {
				t.Errorf("a partial response: %s, want %s", got, tc.count)
			}
			partial = false
			if got := s.round(60 * time.Second).report.Result.Row(0)[0].Value; got != tc.first {
				t.Errorf("first value %d, want %d", got, tc.first)
			}
		})
	}
}

// TestReturningSourceKeepsItsHistory: after a restart without the source, it is not known which series name
// a cluster. They are not others once the source is back.
func TestReturningSourceKeepsItsHistory(t *testing.T) {
	fleet := fakeFleet{clusters: healthy.clusters, values: map[string]map[string]float64{"free": {"a": 1, "b": 2, "c": 3}}}
	s := newSourceRestart(t, &fleet)
	s.setSourceByLabel(&fleet)
	for cluster, site := range map[string]string{"c1": "a", "c2": "b", "c3": "c"} {
		s.relabel(cluster, site)
	}
	s.round(0)
	s.restart()
	s.r.sources.Delete("prometheus")
	s.round(30 * time.Second)
	s.setSourceByLabel(fakeFleet{failures: map[string]error{"free": errors.New("down")}})
	s.round(60 * time.Second)
	if got := s.published(); got != "Kept" {
		t.Errorf("got %s, want Kept", got)
	}
}
