package querycache

import (
	"errors"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func holderSeries(cluster, namespace, kind string, pods float64) query.Sample {
	return query.Sample{Labels: map[string]string{"cluster": cluster, "namespace": namespace, "owner_kind": kind, "owner_name": "train"}, Value: pods}
}

// newHolderFixture has a workload of two pods with two devices each that cluster1 admitted a minute ago, and whose
// pods are not ready.
func newHolderFixture(t *testing.T) *fixture {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.results(t)
	f.facts.PodSets[0].Pods = 2
	train := []ledger.Owner{{Namespace: "team-a", Kind: "Job", Name: "train"}}
	f.ledger.Debit(ledger.Entry{UID: "uid", Cluster: "cluster1", PodSets: f.facts.PodSets, Owners: train, DebitedAt: noon.Add(-time.Minute)})
	f.ledger.MarkAdmitted("uid", "cluster1", noon.Add(-time.Minute), true)
	f.source.responses["plimsoll_exporter_api_server_reachable"] = series("cluster1", 1.0)
	return f
}

// reserved is the number of devices that are reserved beside a sample taken a minute from now.
func (f *fixture) reserved() int64 {
	return f.ledger.View().Devices("cluster1", noon.Add(time.Minute), "other", f.facts.PodSets[0])
}

func TestHoldersAreReportedToTheLedger(t *testing.T) {
	const holders = "owner_name, pod) (plimsoll_pod_owner_info"
	for _, tc := range []struct {
		name   string
		change func(*fixture)
		want   int64
	}{
		{"the workload's pods hold its devices", func(f *fixture) {
			f.source.responses[holders] = query.Result{Samples: []query.Sample{holderSeries("cluster1", "team-a", "Job", 2), holderSeries("cluster2", "team-a", "Job", 1)}}
		}, 0},
		{"one of two pods holds its devices", func(f *fixture) {
			f.source.responses[holders] = query.Result{Samples: []query.Sample{holderSeries("cluster1", "team-a", "Job", 1)}}
		}, 2},
		{"another namespace", func(f *fixture) {
			f.source.responses[holders] = query.Result{Samples: []query.Sample{holderSeries("cluster1", "team-b", "Job", 2)}}
		}, 4},
		{"another kind", func(f *fixture) {
			f.source.responses[holders] = query.Result{Samples: []query.Sample{holderSeries("cluster1", "team-a", "RayJob", 2)}}
		}, 4},
		{"none holds devices", func(*fixture) {}, 4},
		{"the exporters do not report owners", func(f *fixture) { delete(f.source.responses, "plimsoll_exporter_api_server_reachable") }, 0},
		{"the response lacks a cluster that it does not name", func(f *fixture) { f.source.responses[holders] = query.Result{Partial: true} }, 4},
		{"the response lacks the cluster", func(f *fixture) {
			f.source.responses[holders] = query.Result{Failed: map[string]string{"cluster1": "timeout"}}
		}, 0},
		{"the query fails", func(f *fixture) { f.source.err = errors.New("down") }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newHolderFixture(t)
			tc.change(f)
			f.refreshHolders(t.Context())
			if got := f.reserved(); got != tc.want {
				t.Errorf("%d devices reserved, want %d", got, tc.want)
			}
		})
	}
}

// Without a workload on its way, nothing is queried. The query names the awaited owners.
func TestHolderQueries(t *testing.T) {
	f := newHolderFixture(t)
	countHolderQueries := func() (n int) {
		for expr := range f.source.queryCounts() {
			if strings.Contains(expr, "owner_name") {
				n++
			}
		}
		return n
	}
	f.ledger.Release("uid")
	f.refreshHolders(t.Context())
	if n := countHolderQueries(); n != 0 {
		t.Errorf("%d queries although no workload is on its way", n)
	}
	f.ledger.Debit(ledger.Entry{UID: "b", Cluster: "cluster1", PodSets: f.facts.PodSets, Owners: []ledger.Owner{{Namespace: "team-a", Kind: "Job", Name: "a.b"}}, DebitedAt: noon})
	f.ledger.MarkAdmitted("b", "cluster1", noon, true)
	f.refreshHolders(t.Context())
	want := `count by (cluster, namespace, owner_kind, owner_name) (group by (cluster, namespace, owner_kind, owner_name, pod) (plimsoll_pod_owner_info{owner_name=~"a\\.b"}))`
	if n := f.source.queryCounts()[want]; n != 1 {
		t.Errorf("queries %v, want %s", f.source.queryCounts(), want)
	}
}
