package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// The queue has quota for 8 devices, and 64 are free. The first job takes the quota. The sample of the
// nodes, 5 s old, shows its pods. That of Kueue may be older than its admission: the quota then still
// shows 8 devices.
func TestQuotaOfAnOlderSample(t *testing.T) {
	const settle = 15
	for _, tc := range []struct {
		name            string
		admitted, ready int // seconds before t0
		quotaSampled    time.Time
		want            State
	}{
		{"Kueue's sample is older than the admission", 20, 15, before(21), Pending},
		{"Kueue's sample is within the settling time", 17, 14, before(2), Pending},
		{"Kueue's sample is newer", 20, 15, before(4), Ready},
		{"the time is unknown", 20, 15, time.Time{}, Pending},
		{"the time is unknown, within four settling times", 4*settle + 5, 15, time.Time{}, Pending},
		{"the time is unknown, after four settling times", 4*settle + 6, 15, time.Time{}, Ready},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(settle*time.Second, 10*time.Minute)
			l.Debit(ledger.Entry{UID: "first", Cluster: "c1", Queue: ledger.Queue{Cluster: "cq"}, PodSets: job("first", 8, 1).PodSets, DebitedAt: before(90)})
			l.MarkAdmitted("first", "c1", before(tc.admitted), true)
			l.MarkPodsReady("first", before(tc.ready))
			c := withQuota(cluster("c1", 7, 56, 8, 64), 8)
			c.QuotaSampledAt = tc.quotaSampled
			d := Decide(remote(job("second", 8, 1)), []Candidate{c}, Fleet{}, l.View(), rules(), 1, t0)
			if d.State != tc.want {
				t.Errorf("%s %s, want %s", d.State, d.Message, tc.want)
			}
			const message = "no cluster has room for 1 pod of 8 " + h100 + ": best is c1, whose queue has quota for 1 (8 devices there promised to other workloads)"
			if tc.want == Pending && d.Message != message {
				t.Errorf("message %q\nwant    %q", d.Message, message)
			}
		})
	}
}
