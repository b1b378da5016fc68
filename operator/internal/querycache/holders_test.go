package querycache

import (
	"errors"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

func holderSeries(cluster, namespace, owner string, devices float64) query.Sample {
	return query.Sample{Labels: map[string]string{"cluster": cluster, "namespace": namespace, "owner_name": owner}, Value: devices}
}

// newHolderFixture has a workload of two devices that cluster1 admitted a minute ago, and whose
// pods are not ready.
func newHolderFixture(t *testing.T) *fixture {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.results(t)
	f.ledger.Debit(ledger.Entry{UID: "uid", Workload: "team-a/job-train", Cluster: "cluster1", PodSets: f.facts.PodSets, Owners: []string{"train"}, DebitedAt: noon.Add(-time.Minute)})
	f.ledger.MarkAdmitted("uid", "cluster1", noon.Add(-time.Minute), true)
	f.source.responses["plimsoll_exporter_api_server_reachable"] = series("cluster1", 1.0)
	return f
}

// reserved is the number of devices that are reserved beside a sample taken a minute from now.
func (f *fixture) reserved() int64 {
	return f.ledger.View().Devices("cluster1", noon.Add(time.Minute), "other", f.facts.PodSets[0])
}

func TestHoldersAreReportedToTheLedger(t *testing.T) {
	const holders = "device:plimsoll_holder:info"
	for _, tc := range []struct {
		name   string
		change func(*fixture)
		want   int64
	}{
		{"the workload's pods hold its devices", func(f *fixture) {
			f.source.responses[holders] = query.Result{Samples: []query.Sample{holderSeries("cluster1", "team-a", "train", 2), holderSeries("cluster2", "team-a", "train", 1)}}
		}, 0},
		{"they hold one of two", func(f *fixture) {
			f.source.responses[holders] = query.Result{Samples: []query.Sample{holderSeries("cluster1", "team-a", "train", 1)}}
		}, 2}, // both devices belong to one pod
		{"another namespace", func(f *fixture) {
			f.source.responses[holders] = query.Result{Samples: []query.Sample{holderSeries("cluster1", "team-b", "train", 2)}}
		}, 2},
		{"none holds devices", func(*fixture) {}, 2},
		{"the exporters do not report owners", func(f *fixture) { delete(f.source.responses, "plimsoll_exporter_api_server_reachable") }, 0},
		{"the response may lack the cluster", func(f *fixture) {
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
			if strings.Contains(expr, "holder") {
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
	f.ledger.Debit(ledger.Entry{UID: "b", Workload: "team-a/b", Cluster: "cluster1", PodSets: f.facts.PodSets, Owners: []string{"a.b"}, DebitedAt: noon})
	f.ledger.MarkAdmitted("b", "cluster1", noon, true)
	f.refreshHolders(t.Context())
	want := `count by (cluster, namespace, owner_name) (device:plimsoll_holder:info{owner_name=~"a\\.b"})`
	if n := f.source.queryCounts()[want]; n != 1 {
		t.Errorf("queries %v, want %s", f.source.queryCounts(), want)
	}
}
