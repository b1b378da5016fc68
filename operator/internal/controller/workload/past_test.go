package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/internal/timing"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// A cache may lag behind what was written, but not for ever: the apiserver's store
// may be put back to an earlier state.
func TestBehindWhatWasWritten(t *testing.T) {
	tracks := newTracks()
	tracks.writes("a", "1000", noon)
	for _, tc := range []struct {
		version string
		after   time.Duration
		want    bool
	}{{"999", time.Second, true}, {"1000", time.Second, false}, {"1001", time.Second, false}, {"999", timing.MaxCacheLag, false}} {
		seen := &metav1.ObjectMeta{UID: "a", ResourceVersion: tc.version}
		if got := tracks.behind(seen, noon.Add(tc.after)); got != tc.want {
			t.Errorf("version %s seen %s after 1000 was written: behind %t, want %t", tc.version, tc.after, got, tc.want)
		}
	}
	if tracks.behind(&metav1.ObjectMeta{UID: "b", ResourceVersion: "1"}, noon) {
		t.Error("a workload that was never written is never behind")
	}
}

func TestMessagesOfOneReasonKeepTheirPace(t *testing.T) {
	tracks := newTracks()
	if !tracks.says("a", "NoRoom", time.Minute, noon) {
		t.Error("the first is said")
	}
	if tracks.says("a", "NoRoom", time.Minute, noon.Add(59*time.Second)) {
		t.Error("the same reason again within its pace")
	}
	if !tracks.says("a", "Stale", time.Minute, noon.Add(59*time.Second)) || !tracks.says("a", "NoRoom", time.Minute, noon.Add(59*time.Second)) {
		t.Error("another reason is said at once")
	}
	if !tracks.says("b", "NoRoom", time.Minute, noon) || !tracks.says("a", "NoRoom", time.Minute, noon.Add(2*time.Minute)) {
		t.Error("another workload's, and in due time, are said")
	}
}
