package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A cache may lag behind a write, but not for ever: the API server's store may be restored
// to an earlier state.
func TestIsBehindOwnWrite(t *testing.T) {
	written := history{}
	written.lastWrite.version, written.lastWrite.at = "1000", noon
	for _, tc := range []struct {
		name    string
		history history
		version string
		after   time.Duration
		want    bool
	}{
		{"older than the write", written, "999", time.Second, true},
		{"the write itself", written, "1000", time.Second, false},
		{"newer than the write", written, "1001", time.Second, false},
		{"older for longer than a cache lags", written, "999", timing.MaxCacheLag, false},
		{"never written", history{}, "1", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := &metav1.ObjectMeta{UID: "a", ResourceVersion: tc.version}
			if got := tc.history.isBehindOwnWrite(seen, noon.Add(tc.after)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestMayWriteMessage(t *testing.T) {
	written := func(kind string, at time.Time) history {
		h := history{}
		h.lastMessage.kind, h.lastMessage.at = kind, at
		return h
	}
	for _, tc := range []struct {
		name    string
		history history
		kind    string
		after   time.Duration
		want    bool
	}{
		{"first message", history{}, "NoRoom", 0, true},
		{"same kind within the interval", written("NoRoom", noon), "NoRoom", 59 * time.Second, false},
		{"another kind", written("NoRoom", noon), "StaleSamples", 59 * time.Second, true},
		{"the first kind after another one", written("StaleSamples", noon.Add(59*time.Second)), "NoRoom", 59 * time.Second, true},
		{"same kind after the interval", written("NoRoom", noon), "NoRoom", 2 * time.Minute, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.history.mayWriteMessage(tc.kind, time.Minute, noon.Add(tc.after)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestHistoryWithoutQuota(t *testing.T) {
	running := &ledger.Entry{Cluster: "cluster1"}
	earlier := possibleCopies{clusters: []string{"cluster3"}, lostAt: noon.Add(-time.Minute)}
	for _, tc := range []struct {
		name          string
		history       history
		endedByWorker bool
		want          possibleCopies
	}{
		{"admitted", history{running: running, nominatedSeen: []string{"cluster1", "cluster2"}}, false, possibleCopies{clusters: []string{"cluster1"}, recorded: true, lostAt: noon}},
		{"ended by the worker", history{running: running, copies: earlier}, true, possibleCopies{lostAt: earlier.lostAt}},
		{"nominated", history{nominatedSeen: []string{"cluster1", "cluster2"}, copies: earlier}, false, possibleCopies{clusters: []string{"cluster1", "cluster2"}, lostAt: noon}},
		{"without quota again", history{copies: earlier}, false, earlier},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.history.withoutQuota(tc.endedByWorker, noon)
			if diff := cmp.Diff(tc.want, got.copies, cmp.AllowUnexported(possibleCopies{})); diff != "" {
				t.Errorf("possible copies (-want +got):\n%s", diff)
			}
			if got.running != nil || got.nominatedSeen != nil {
				t.Errorf("the attempt did not end: %+v", got)
			}
		})
	}
}

// A history is a value: a later one must not change an earlier one.
func TestHistoryWithNominationsCopies(t *testing.T) {
	first := history{nominatedSeen: append(make([]string, 0, 4), "cluster1")}
	a, b := first.withNominations([]string{"cluster2"}), first.withNominations([]string{"cluster3"})
	if diff := cmp.Diff([][]string{{"cluster1"}, {"cluster1", "cluster2"}, {"cluster1", "cluster3"}},
		[][]string{first.nominatedSeen, a.nominatedSeen, b.nominatedSeen}); diff != "" {
		t.Errorf("nominations seen (-want +got):\n%s", diff)
	}
}
