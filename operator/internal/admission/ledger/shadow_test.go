package ledger

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// What a gate in mode Shadow would have sent somewhere counts for no gate in mode Enforce, until the workload is there.
func TestShadowEntriesDoNotCountForOthers(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	l := New(time.Second, time.Hour)
	devices := shape.PodSet{Resource: "nvidia.com/gpu", DevicesPerPod: 8, Pods: 1}
	entry := Entry{UID: "1", Workload: "team-a/job", Cluster: "cluster1", PodSets: []shape.PodSet{devices}, DebitedAt: now, Shadow: true}
	l.Debit(entry)
	l.Debit(Entry{UID: "2", Workload: "team-a/other", Cluster: "cluster2", PodSets: []shape.PodSet{devices}, DebitedAt: now})
	for view, want := range map[string]int{"shadow": 1, "enforced": 0} {
		v := l.View()
		if view == "enforced" {
			v = v.Enforced()
		}
		if n := len(v.Entries("cluster1", now)); n != want {
			t.Errorf("%s: %d entries on cluster1, want %d", view, n, want)
		}
		if n := len(v.Entries("cluster2", now)); n != 1 {
			t.Errorf("%s: %d entries on cluster2, want 1", view, n)
		}
	}
	if n := l.DevicesByCluster()["cluster1"]; n != 0 {
		t.Errorf("%d devices on cluster1", n)
	}
	entry.Shadow = false // the cluster has admitted it
	l.Debit(entry)
	if n := len(l.View().Enforced().Entries("cluster1", now)); n != 1 {
		t.Errorf("%d entries of an admitted workload, want 1", n)
	}
	if !l.Commit(l.View().Enforced(), "3", nil, nil, nil) {
		t.Error("a decision on the enforced view is out of date")
	}
}
