package score

import (
	"fmt"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestTooFewFreshClustersRefuseTheRound(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}}, "c1", "c2", "c3", "c4")
	f.round(0, v(1, 2, 3, 4))
	mostAbsent := v(9, 9, 9, 9)
	for i := range 3 {
		mostAbsent[i].Outcome = Absent
	}
	if r := f.round(30, mostAbsent); !r.Refused || r.Known != 4 || r.Fresh != 1 {
		t.Errorf("refused %v, %d of %d", r.Refused, r.Fresh, r.Known)
	}
	f.expect(0, "10 Kept")
	f.expect(3, "40 Kept")
	half := v(9, 9, 9, 9)
	half[0].Outcome, half[1].Outcome = Absent, Absent
	if r := f.round(60, half); r.Refused {
		t.Error("the round was refused although half of the clusters are fresh")
	}
	f.expect(3, "90 Scored")
}

func TestTwoKnownClustersNeverRefuseARound(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}}, "c1", "c2")
	f.round(0, v(1, 2))
	if r := f.round(30, missing(Absent, 2)); r.Refused {
		t.Error("refused with two known clusters")
	}
}

// TestOutageOfMostClustersOnlyDelaysTheOthers: 6 of 10 clusters lose their metrics, and 4
// stay fresh. The scores of the 4 are delayed until the keep time ends, and never become -100.
func TestOutageOfMostClustersOnlyDelaysTheOthers(t *testing.T) {
	var clusters []string
	for i := range 10 {
		clusters = append(clusters, fmt.Sprintf("c%02d", i))
	}
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "100")}, Total: &v1alpha1.TotalSpec{}}, clusters...)
	f.round(0, v(10, 10, 10, 10, 10, 10, 10, 10, 10, 10))
	for at := 30; at <= 24*3600; at += 30 {
		free := float64(20 + at/30%50)
		in := missing(Absent, 10)
		for i := range 4 {
			in[i] = Input{Value: free}
		}
		r := f.round(at, in)
		survivor, lost := fmt.Sprintf("%.0f Scored", free), "-100 Worst"
		if at < 300 {
			survivor, lost = "10 Kept", "10 Kept"
		}
		if r.Refused != (at < 300) {
			t.Errorf("at %d s: refused %v", at, r.Refused)
		}
		for i := range 4 {
			f.expect(i, survivor, survivor)
		}
		f.expect(9, lost, lost)
		if t.Failed() {
			t.Fatalf("at %d s", at)
		}
	}
}

// TestRecoveryFromAnOutageOfAllClusters: after the whole fleet was lost, each cluster counts
// as soon as it is fresh again.
func TestRecoveryFromAnOutageOfAllClusters(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}}, "c1", "c2", "c3", "c4")
	f.round(0, v(1, 2, 3, 4))
	if r := f.round(30, missing(Failed, 4)); !r.Refused {
		t.Error("a round without fresh clusters is not refused")
	}
	f.expect(0, "10 Kept")
	f.round(300, missing(Failed, 4))
	f.expect(0, "-100 Worst")
	one := missing(Absent, 4)
	one[0] = Input{Value: 5}
	f.round(330, one)
	f.expect(0, "50 Scored")
	f.round(360, one)
	f.expect(0, "50 Scored")
	f.expect(1, "-100 Worst")
}

// TestNewClusterWaitsForTheEndOfARefusal: nothing is known about a cluster that joins while
// the round is refused.
func TestNewClusterWaitsForTheEndOfARefusal(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}}, "c1", "c2", "c3")
	f.round(0, v(1, 2, 3))
	f.clusters = []string{"c1", "c2", "c3", "c4"}
	joined := missing(Absent, 4)
	joined[3] = Input{Value: 9}
	f.round(30, joined)
	f.expect(3, "0 Omitted")
	f.round(329, joined)
	f.expect(3, "0 Omitted")
	f.round(330, joined)
	f.expect(3, "90 Scored")
}

func TestNextKeepEndOfAClusterThatJoined(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}}, "c1", "c2", "c3", "c4")
	f.round(0, v(1, 2, 3, 4))
	f.clusters = []string{"c1", "c2", "c3", "c4", "c5"}
	joined := missing(Absent, 5)
	joined[4] = Input{Value: 9}
	f.round(310, joined) // the keep times of the others have ended
	end, ok := f.round(320, joined).NextKeepEnd()
	if !ok || !end.Equal(at(610)) {
		t.Errorf("keep time ends %v %v, want 610 s, when the delay ends", end, ok)
	}
	f.expect(4, "0 Omitted")
	f.round(610, joined)
	f.expect(4, "90 Scored")
}

func TestNextKeepEndOfAnAbsentScore(t *testing.T) {
	a := linear("a", "0", "10")
	a.Missing.Absent = "Worst"
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a}}, "c1", "c2")
	absent := missing(Absent, 2)
	absent[0] = Input{Value: 5}
	f.round(0, absent)
	failed := missing(Failed, 2)
	failed[0] = Input{Value: 5}
	if end, ok := f.round(30, failed).NextKeepEnd(); !ok || !end.Equal(at(300)) {
		t.Errorf("keep time ends %v %v, want 300 s, when the absence is no longer known", end, ok)
	}
}

func TestNextKeepEnd(t *testing.T) {
	a, b, c := linear("a", "0", "10"), linear("b", "0", "10"), linear("c", "0", "10")
	b.Missing.KeepLastSeconds, c.Missing.KeepLastSeconds = ptr(int32(100)), ptr(int32(200))
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b, c}}, "c1", "c2")
	if end, ok := f.round(0, v(1, 2), v(1, 2), v(1, 2)).NextKeepEnd(); ok {
		t.Errorf("keep time ends %v without a keep time", end)
	}
	for _, tc := range []struct {
		at, end int
		ok      bool
	}{{30, 100, true}, {100, 200, true}, {200, 300, true}, {300, 0, false}} {
		end, ok := f.round(tc.at, missing(NaN, 2), missing(NaN, 2), missing(NaN, 2)).NextKeepEnd()
		if ok != tc.ok || ok && !end.Equal(at(tc.end)) {
			t.Errorf("at %d s: keep time ends %v %v, want %d s", tc.at, end, ok, tc.end)
		}
	}
}
