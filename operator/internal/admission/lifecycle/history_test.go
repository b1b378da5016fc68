package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A cache may lag behind a write, but not for ever: the API server's store may be restored
// to an earlier state.
func TestIsBehindOwnWrite(t *testing.T) {
	written := History{}
	written.LastWrite.Version, written.LastWrite.At = "1000", fixture.Noon
	for _, tc := range []struct {
		name    string
		history History
		version string
		after   time.Duration
		want    bool
	}{
		{"older than the write", written, "999", time.Second, true},
		{"the write itself", written, "1000", time.Second, false},
		{"newer than the write", written, "1001", time.Second, false},
		{"older for longer than a cache lags", written, "999", timing.MaxCacheLag, false},
		{"never written", History{}, "1", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := &metav1.ObjectMeta{UID: "a", ResourceVersion: tc.version}
			if got := tc.history.IsBehindOwnWrite(seen, fixture.Noon.Add(tc.after)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestMessageDelay(t *testing.T) {
	written := func(kind string, at time.Time) History {
		h := History{}
		h.LastMessage.Kind, h.LastMessage.At = kind, at
		return h
	}
	for _, tc := range []struct {
		name    string
		history History
		kind    string
		after   time.Duration
		want    time.Duration
	}{
		{"first message", History{}, "NoRoom", 0, 0},
		{"same kind within the interval", written("NoRoom", fixture.Noon), "NoRoom", 59 * time.Second, time.Second},
		{"another kind", written("NoRoom", fixture.Noon), "StaleSamples", 59 * time.Second, 0},
		{"the first kind after another one", written("StaleSamples", fixture.Noon.Add(59*time.Second)), "NoRoom", 59 * time.Second, 0},
		{"same kind after the interval", written("NoRoom", fixture.Noon), "NoRoom", 2 * time.Minute, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.history.messageDelay(tc.kind, time.Minute, fixture.Noon.Add(tc.after)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestHistoryWithoutQuota(t *testing.T) {
	running := &ledger.Entry{Cluster: "cluster1"}
	earlier := possibleCopies{Clusters: []string{"cluster3"}, LostAt: fixture.Noon.Add(-time.Minute)}
	for _, tc := range []struct {
		name          string
		history       History
		endedByWorker bool
		want          possibleCopies
	}{
		{"admitted", History{Running: running, NominatedSeen: []string{"cluster1", "cluster2"}}, false, possibleCopies{Clusters: []string{"cluster1"}, Recorded: true, LostAt: fixture.Noon}},
		{"ended by the worker", History{Running: running, Copies: earlier}, true, possibleCopies{LostAt: earlier.LostAt}},
		{"nominated", History{NominatedSeen: []string{"cluster1", "cluster2"}, Copies: earlier}, false, possibleCopies{Clusters: []string{"cluster1", "cluster2"}, LostAt: fixture.Noon}},
		{"without quota again", History{Copies: earlier}, false, earlier},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.history.WithoutQuota(tc.endedByWorker, fixture.Noon)
			if diff := cmp.Diff(tc.want, got.Copies, cmp.AllowUnexported(possibleCopies{})); diff != "" {
				t.Errorf("possible copies (-want +got):\n%s", diff)
			}
			if got.Running != nil || got.NominatedSeen != nil {
				t.Errorf("the attempt did not end: %+v", got)
			}
		})
	}
}

// A history is a value: a later one must not change an earlier one.
func TestHistoryWithNominationsCopies(t *testing.T) {
	first := History{NominatedSeen: append(make([]string, 0, 4), "cluster1")}
	a, b := first.WithNominations([]string{"cluster2"}), first.WithNominations([]string{"cluster3"})
	if diff := cmp.Diff([][]string{{"cluster1"}, {"cluster1", "cluster2"}, {"cluster1", "cluster3"}},
		[][]string{first.NominatedSeen, a.NominatedSeen, b.NominatedSeen}); diff != "" {
		t.Errorf("nominations seen (-want +got):\n%s", diff)
	}
}
