package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// A cluster is not held if the worker's queue could not admit the workload even if everything
// that the hub sent there had ended.
func TestHoldRespectsTheSizeOfTheQuota(t *testing.T) {
	for _, tc := range []struct {
		name    string
		quota   Number
		queue   string
		running int64
		want    bool
	}{
		{"the quota is too small", Known(4), "cq", 0, false},
		{"too small with what runs there", Known(4), "cq", 3, false},
		{"enough once a running workload ends", Known(4), "cq", 4, true},
		{"enough once a workload of the cohort ends", Known(4), "friend", 4, true},
		{"workloads of other queues return no quota", Known(4), "outsider", 4, false},
		{"enough", Known(8), "cq", 0, true},
		{"unknown", Number{}, "cq", 0, true},
	} {
		for kind, of := range map[string]func(shape.Facts) shape.Facts{"remote": remote, "preempting": preempting} {
			t.Run(tc.name+", "+kind, func(t *testing.T) {
				c := full("cluster1", 4)
				c.Shapes[0].Quota = tc.quota
				l := ledger.New(0, 0)
				l.PutRunning(ledger.Running{UID: "r", Cluster: "cluster1", ClusterQueue: tc.queue, PodSets: job("r", 1, tc.running).PodSets})
				r := holdRules(v1alpha1.HoldEnforce, 1, time.Hour)
				r.CohortQueues = []string{"friend"}
				d := Decide(of(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
				if got := d.Hold != nil; got != tc.want {
					t.Errorf("held is %t, want %t (%s)", got, tc.want, d.Message)
				}
			})
		}
	}
}

// The held workload starts at the latest when enough whole nodes are returned, or when all that
// runs on the cluster has ended.
func TestHoldKnowsTheLatestStart(t *testing.T) {
	running := func(uid string, devices int64, endsIn time.Duration) ledger.Running {
		r := ledger.Running{UID: uid, Cluster: "cluster1", PodSets: job(uid, devices, 1).PodSets}
		if endsIn > 0 {
			r.EndsBy = t0.Add(endsIn)
		}
		return r
	}
	for _, tc := range []struct {
		name    string
		running []ledger.Running
		want    time.Duration // 0 = unknown
	}{
		{"a whole node", []ledger.Running{running("small", 1, time.Minute), running("whole", 8, 10*time.Minute), running("later", 8, time.Hour)}, 10 * time.Minute},
		{"only small pods", []ledger.Running{running("a", 4, time.Minute), running("b", 4, 20*time.Minute)}, 20 * time.Minute},
		{"an unknown duration", []ledger.Running{running("a", 4, time.Minute), running("b", 4, 0)}, 0},
		{"a whole node before an unknown duration", []ledger.Running{running("a", 4, 0), running("b", 8, time.Minute)}, time.Minute},
		{"nothing known", nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(0, time.Hour)
			for _, r := range tc.running {
				l.PutRunning(r)
			}
			d := Decide(job("a", 8, 1), []Candidate{full("cluster1", 4)}, Fleet{}, l.View(), holdRules(v1alpha1.HoldEnforce, 1, time.Hour), 1, t0)
			if d.Hold == nil {
				t.Fatal("no hold")
			}
			got := time.Duration(0)
			if !d.Hold.StartsBy.IsZero() {
				got = d.Hold.StartsBy.Sub(t0)
			}
			if got != tc.want {
				t.Errorf("starts by %s, want %s", got, tc.want)
			}
		})
	}
}
