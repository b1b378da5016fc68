package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Pods in flight are debited with their part of the devices: on a cluster with room for three pods
// with 10,000 MiB, one with 20,000 MiB leaves room for one.
func TestDecideWithSharesInFlight(t *testing.T) {
	sharing := func(uid string, pods, mib int64) shape.Facts {
		f := job(uid, 1, pods)
		f.PodSets[0].Share = &shape.Share{Memory: mib << 20, CorePercent: 30}
		return f
	}
	l := ledger.New(time.Minute, time.Hour)
	l.Debit(ledger.Entry{UID: "other", Cluster: "cluster1", DebitedAt: before(1), PodSets: sharing("other", 1, 20_000).PodSets})
	for _, tc := range []struct {
		pods    int64
		state   State
		message string
	}{
		{1, Ready, "cluster1 has room for 1 such pod"},
		{2, Pending, "no cluster has room for 2 pods of 1 " + h100 + " with 10000 MiB and 30% of the cores: best is cluster1 with room for 1 (1 device there promised to other workloads)"},
	} {
		d := Decide(sharing("own", tc.pods, 10_000), []Candidate{cluster("cluster1", 3, 2, 0, 8)}, Fleet{}, l.View(), rules(), 1, t0)
		if d.State != tc.state || d.Message != tc.message {
			t.Errorf("%d pods: %s, %q, want %s, %q", tc.pods, d.State, d.Message, tc.state, tc.message)
		}
	}
}
