package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/ledger"
)

// What a decision's own samples show is not subtracted once more, and what they
// are too old to show is, however new other decisions' samples are.
func TestEveryDecisionSubtractsWhatItsOwnSamplesDoNotShow(t *testing.T) {
	l := ledger.New(5*time.Second, 10*time.Minute)
	l.Debit(ledger.Entry{UID: "them", Cluster: "cluster1", PodSets: job("them", 8, 1).PodSets, DebitedAt: t0})
	l.MarkAdmitted("them", "cluster1", t0.Add(10*time.Second), false)
	now := t0.Add(30 * time.Second)
	for _, tc := range []struct {
		sampled time.Duration
		fit     float64
		want    State
	}{{14 * time.Second, 1, Pending}, {16 * time.Second, 1, Ready}, {14 * time.Second, 2, Ready}} {
		c := cluster("cluster1", tc.fit, 8*tc.fit, 8, 64)
		c.SampledAt = t0.Add(tc.sampled)
		d := Decide(job("us", 8, 1), []Candidate{c}, Fleet{}, l.View(), rules(), 1, now)
		if d.State != tc.want {
			t.Errorf("samples of %s with room for %g: %s, want %s", tc.sampled, tc.fit, d.State, tc.want)
		}
		if got := len(l.View().Entries("cluster1", c.SampledAt)); (got == 0) != (tc.sampled > 15*time.Second) {
			t.Errorf("samples of %s: %d entries to explain", tc.sampled, got)
		}
	}
}

func TestCreditsCountInRankingAlone(t *testing.T) {
	l := ledger.New(5*time.Second, 10*time.Minute)
	l.Credit(ledger.Credit{Cluster: "cluster1", PodSets: job("x", 8, 1).PodSets, FinishedAt: t0})
	full := cluster("cluster1", 0, 0, 0, 64)
	if d := Decide(job("a", 8, 1), []Candidate{full}, Fleet{}, l.View(), rules(), 1, t0); d.State != Pending {
		t.Errorf("a credit must not make room: %s", d.Message)
	}
	d := Decide(job("a", 1, 1), []Candidate{cluster("cluster1", 4, 4, 4, 64), cluster("cluster2", 4, 8, 4, 64)}, Fleet{}, l.View(), rules(), 1, t0)
	if d.Order[0] != "cluster1" {
		t.Errorf("4 free and 8 coming free beat 8 free, got %v", d.Order)
	}
	l.Expire(map[string]time.Time{"cluster1": t0.Add(6 * time.Second)}, t0.Add(7*time.Second))
	if got := l.View().Credited("cluster1", t0.Add(-time.Second), job("a", 1, 1).PodSets[0]); got != 0 {
		t.Errorf("a newer sample shows it: %d still credited", got)
	}
}
