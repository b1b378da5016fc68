package querycache

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

const (
	secretObjects  = `group by (cluster, secret) (kube_secret_info{exported_namespace="",namespace="team-a"})`
	secretReported = `count by (cluster) (group by (cluster, secret) (kube_secret_info{exported_namespace="",namespace=~".+"}))`
)

func secretSeries(cluster, name string) query.Sample {
	return query.Sample{Labels: map[string]string{"cluster": cluster, "secret": name}, Value: 1}
}

// newPrerequisiteFixture has a gate that tests Secrets and ConfigMaps. Both clusters report
// Secrets, and cluster1 has the one that the workload refers to.
func newPrerequisiteFixture() *fixture {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15, Prerequisites: []v1alpha1.GatePrerequisite{
		{Kind: v1alpha1.PrerequisiteSecret}, {Kind: v1alpha1.PrerequisiteConfigMap}}})
	f.facts.Remote = true
	f.facts.References = []shape.Reference{{Kind: v1alpha1.PrerequisiteSecret, Name: "hf"}}
	f.source.responses[secretObjects] = query.Result{Samples: []query.Sample{secretSeries("cluster1", "hf"), secretSeries("cluster2", "ssh"), secretSeries("", "hf")}}
	f.source.responses[secretReported] = series("cluster1", 8.0, "cluster2", 3.0)
	return f
}

// verdicts are what the gate's rule for prerequisites says of cluster1 and cluster2.
func (f *fixture) prerequisites(t *testing.T) (of1, of2 string) {
	t.Helper()
	results, fleet := f.results(t)
	if fleet.Problem != "" || fleet.Incomplete {
		t.Errorf("prerequisites changed the state of the fleet: %+v", fleet)
	}
	describe := func(cluster string) string {
		list := results[cluster].Prerequisites
		if len(list) != 1 || list[0].Kind != v1alpha1.PrerequisiteSecret {
			return fmt.Sprint(list)
		}
		names := slices.Sorted(maps.Keys(list[0].Names))
		return fmt.Sprintf("%s reported=%t %s", strings.Join(names, ","), list[0].Reported, list[0].EvaluatedAt.Format("15:04:05"))
	}
	return describe("cluster1"), describe("cluster2")
}

func TestPrerequisites(t *testing.T) {
	for _, tc := range []struct {
		name     string
		change   func(*fixture)
		of1, of2 string
	}{
		{"reported", func(*fixture) {}, "hf reported=true 12:00:00", "ssh reported=true 12:00:00"},
		{"cluster2 has no kube-state-metrics", func(f *fixture) {
			f.source.responses[secretReported] = series("cluster1", 8.0)
			f.source.responses[secretObjects] = query.Result{Samples: []query.Sample{secretSeries("cluster1", "hf")}}
		}, "hf reported=true 12:00:00", " reported=false 12:00:00"},
		{"the response lacks cluster2", func(f *fixture) {
			f.source.responses[secretObjects] = query.Result{Samples: []query.Sample{secretSeries("cluster1", "hf")}, Failed: map[string]string{"cluster2": "timeout"}}
		}, "hf reported=true 12:00:00", " reported=true 00:00:00"},
		{"the response is partial", func(f *fixture) {
			f.source.responses[secretObjects] = query.Result{Samples: []query.Sample{secretSeries("cluster1", "hf")}, Partial: true}
		}, "hf reported=true 00:00:00", " reported=true 00:00:00"},
		{"the query fails", func(f *fixture) { f.source.failing = "kube_secret_info" }, " reported=false 00:00:00", " reported=false 00:00:00"},
		{"many objects", func(f *fixture) {
			r := f.source.responses[secretObjects]
			for range 3 {
				r.Samples = append(r.Samples, secretSeries("cluster1", "hf"))
			}
			f.source.responses[secretObjects] = r
		}, "hf reported=true 12:00:00", "ssh reported=true 12:00:00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newPrerequisiteFixture()
			tc.change(f)
			of1, of2 := f.prerequisites(t)
			if of1 != tc.of1 || of2 != tc.of2 {
				t.Errorf("got %q and %q\nwant %q and %q", of1, of2, tc.of1, tc.of2)
			}
		})
	}
}

// A failed query keeps the last names for maxSampleAge. After that nothing is known.
func TestPrerequisitesOfFailingQuery(t *testing.T) {
	f := newPrerequisiteFixture()
	f.results(t)
	f.source.err = errors.New("down")
	f.clock.add(100 * time.Second)
	f.refresh()
	results, _ := f.results(t)
	if got := results["cluster1"].Prerequisites[0]; !got.Names["hf"] || !got.EvaluatedAt.Equal(noon) {
		t.Errorf("after 100 s: %+v, want the names of noon", got)
	}
	f.clock.add(30 * time.Second)
	f.refresh()
	results, _ = f.results(t)
	if got := results["cluster1"].Prerequisites[0]; got.Names["hf"] || !got.EvaluatedAt.IsZero() {
		t.Errorf("after 130 s: %+v, want nothing", got)
	}
}

// Workloads of one namespace share the queries, whatever their objects are called.
func TestQueriesForPrerequisites(t *testing.T) {
	f := newPrerequisiteFixture()
	for _, name := range []string{"hf", "ssh", `a"} or vector(1) #`} {
		f.facts.References[0].Name = name
		f.results(t)
	}
	got := map[string]int{}
	for expr, n := range f.source.queryCounts() {
		if strings.Contains(expr, "kube_secret") {
			got[expr] = n
		}
	}
	if diff := cmp.Diff(map[string]int{secretObjects: 1, secretReported: 1}, got); diff != "" {
		t.Errorf("queries of three workloads (-want +got):\n%s", diff)
	}
	f.facts.Namespace = `a"} or vector(1) #`
	f.results(t)
	if want := `group by (cluster, secret) (kube_secret_info{exported_namespace="",namespace="a\"} or vector(1) #"})`; f.source.queryCounts()[want] != 1 {
		t.Errorf("queries %q\nwant %s", f.source.queries, want)
	}
	if n := f.source.queryCounts()[secretReported]; n != 1 {
		t.Errorf("the clusters with Secrets were queried %d times for two namespaces, want once", n)
	}
}

// A gate without prerequisites sends the same queries as before, and a workload that MultiKueue
// does not copy needs none.
func TestNoQueriesForPrerequisites(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*fixture)
	}{
		{"gate without prerequisites", func(f *fixture) { f.gate.Spec.Prerequisites = nil }},
		{"workload without references", func(f *fixture) { f.facts.References = nil }},
		{"workload that stays on the hub", func(f *fixture) { f.facts.Remote = false }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newPrerequisiteFixture()
			tc.change(f)
			results, _ := f.results(t)
			want := []string{"sampleTime", "excess", "fit", "emptyFit", "largestNode", "headroom", "capacity", "largest", "deviceFit", "measured"}
			if f.facts.Remote {
				want = append(want, "quotaTime", "quota", "quotaLimit", "kueue", "localQueues")
			}
			if got := len(f.source.queries); got != len(want) {
				t.Errorf("%d queries %q\nwant %v", got, f.source.queries, want)
			}
			if list := results["cluster1"].Prerequisites; list != nil {
				t.Errorf("result %v", list)
			}
		})
	}
}
