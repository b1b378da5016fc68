package dispatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestRecordRoundTrip(t *testing.T) {
	r := Record{}.Begin([]string{"cluster2"}, t0, "room", t0).
		Widen([]string{"cluster2", "cluster1"}, "late", after(30)).
		Yielded(after(3600), after(3600)).
		CountUnplaced(true, after(3600), after(3660))
	got, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: r.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestDecodeWithoutAnnotation(t *testing.T) {
	if r, err := Decode(nil); err != nil || cmp.Diff(Record{}, r) != "" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestDecodeRejectsInvalidAnnotation(t *testing.T) {
	if _, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: "{"}); err == nil {
		t.Error("got no error")
	}
}

// A user may write any number into the annotation. The operator counts on from it.
func TestDecodeRejectsForgedNumbers(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"attempt":2147483648,"yields":2147483648,"unplacedSeconds":2147483648}`: true,
		`{"attempt":9223372036854775807}`:                                         false,
		`{"attempt":-1}`:                                                          false,
		`{"attempt":1,"yields":-1}`:                                               false,
		`{"attempt":1,"yields":9223372036854775807}`:                              false,
		`{"attempt":1,"unplacedSeconds":-1}`:                                      false,
		`{"attempt":1,"unplacedSeconds":9223372036}`:                              false,
	} {
		if r, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: text}); (err == nil) != ok {
			t.Errorf("%s: got %+v, %v", text, r, err)
		}
	}
}

// FuzzRecord checks that the operator can continue from any annotation: a user may write it. The
// times are those of a workload that reserved quota a minute ago.
func FuzzRecord(f *testing.F) {
	f.Add(Record{}.Begin([]string{"cluster2"}, t0, "room", t0).Widen([]string{"cluster2", "cluster1"}, "late", after(30)).Encode())
	f.Add(Record{}.Yielded(t0, after(30)).CountUnplaced(true, t0, after(40)).Encode())
	f.Add(`{"attempt":9223372036854775807,"quotaReservedAt":"2026-01-01T00:00:00Z","nominated":["a","a"]}`)
	f.Add(`{"attempt":1,"lastYield":"9999-12-31T23:59:59-23:59","unplacedSeconds":-9223372036854775808}`)
	f.Add("{\"reason\":\"\xff\"}")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: text})
		if err != nil {
			return
		}
		begun := r.Begin([]string{"cluster1"}, t0, "room", after(60))
		if !begun.IsCurrent(t0) {
			t.Errorf("%s: a new attempt is not the current one", text)
		}
		for _, next := range []Record{
			r, begun, r.Widen([]string{"cluster1"}, "late", after(60)), r.Adopt([]string{"cluster1"}, t0, after(60)), r.Yielded(t0, after(60)),
			r.Requeued("gone", after(60)), r.Woken(), r.CountUnplaced(true, t0, after(60)), r.CountUnplaced(false, t0, after(60)),
		} {
			if next.UnplacedFor(t0, after(60)) < 0 || YieldPause(next.Yields) <= 0 {
				t.Errorf("%s: unplaced for %s", text, next.UnplacedFor(t0, after(60)))
			}
			again, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: next.Encode()})
			if diff := cmp.Diff(next, again, cmpopts.EquateEmpty()); diff != "" && max(int64(next.Attempt), int64(next.Yields), next.UnplacedSeconds) <= maxCount {
				t.Errorf("%s: %v\n%s", text, err, diff)
			}
		}
	})
}

func TestYieldedSleepsUntilWoken(t *testing.T) {
	r := Record{}.Yielded(t0, t0)
	if !r.SleepsUntil.Equal(t0.Add(timing.YieldSleep)) || r.Yields != 1 {
		t.Errorf("after a yield: %+v", r)
	}
	if woken := r.Woken(); !woken.SleepsUntil.IsZero() || woken.Yields != 1 {
		t.Errorf("after waking up: %+v", woken)
	}
}

// A running workload that is deactivated holds its quota until a nomination completes the
// eviction. It is activated later all the same, and its record says what happened to it.
func TestBeginKeepsTheActivationOfAReclaimedWorkload(t *testing.T) {
	r := Record{}.Begin([]string{"cluster1"}, t0, "room", t0).Reclaim("idle-gpus", "8 devices idle for 30m", 40*time.Second, after(3600))
	if !r.SleepsUntil.Equal(after(3640)) || r.Pause() != 40*time.Second || r.Reason != ReasonReclaimed {
		t.Errorf("after the reclaim: %+v", r)
	}
	repaired := r.Begin([]string{"cluster2"}, t0, "repair", after(3605))
	if !repaired.SleepsUntil.Equal(r.SleepsUntil) {
		t.Errorf("activation at %s, want %s", repaired.SleepsUntil, r.SleepsUntil)
	}
	if !repaired.IsReclaimed() || repaired.Woken().IsReclaimed() || (Record{}).Yielded(t0, t0).IsReclaimed() {
		t.Error("only the pause of a reclaimed workload is that of a reclaim")
	}
	again := repaired.Woken().Begin([]string{"cluster3"}, after(4000), "room", after(4000))
	want := &Reclaim{Policy: "idle-gpus", At: after(3600), PauseUntil: after(3640), Cause: "8 devices idle for 30m"}
	if diff := cmp.Diff(want, again.Reclaimed); diff != "" {
		t.Errorf("reclaimed (-want +got):\n%s", diff)
	}
}

// Pods of a reclaimed workload may still run without quota, for as long as their grace period.
func TestPauseOfAReclaim(t *testing.T) {
	for _, tc := range []struct{ grace, want time.Duration }{
		{0, timing.YieldSleep}, {10 * time.Second, timing.YieldSleep}, {time.Minute, time.Minute}, {time.Hour, timing.MaxReclaimPause},
	} {
		r := Record{}.Reclaim("idle-gpus", "idle", tc.grace, t0)
		if r.Pause() != tc.want || !r.SleepsUntil.Equal(t0.Add(tc.want)) || !r.IsReclaimed() {
			t.Errorf("grace period %s: pause %s until %s", tc.grace, r.Pause(), r.SleepsUntil)
		}
		if later := r.Woken().Yielded(t0, after(7200)); later.Pause() != timing.YieldSleep || later.IsReclaimed() {
			t.Errorf("grace period %s: a later yield pauses for %s", tc.grace, later.Pause())
		}
	}
}

func TestPatchHasTheRecordAndTheActivity(t *testing.T) {
	active := false
	for _, tc := range []struct {
		name   string
		active *bool
		want   string
	}{
		{"record", nil, `{"metadata":{"annotations":{"plimsoll.dev/dispatch":"{\"attempt\":1}"},"resourceVersion":"7"}}`},
		{"record and activity", &active, `{"metadata":{"annotations":{"plimsoll.dev/dispatch":"{\"attempt\":1}"},"resourceVersion":"7"},"spec":{"active":false}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Record{Attempt: 1}.Patch("7", tc.active)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v, want %s", got, err, tc.want)
			}
		})
	}
}

// Only time with quota and without room counts, before and after a yield.
func TestUnplacedFor(t *testing.T) {
	noRoom := Record{}.CountUnplaced(true, after(0), after(10))
	yielded := noRoom.Yielded(after(0), after(70))
	for _, tc := range []struct {
		name            string
		r               Record
		quotaSince, now int
		want            time.Duration
	}{
		{"no cluster was without room", Record{}, 0, 70, 0},
		{"there is room", noRoom.CountUnplaced(false, after(0), after(70)), 0, 100, time.Minute},
		{"there was room all the time", Record{}.CountUnplaced(false, after(0), after(10)), 0, 70, 0},
		{"no room", noRoom, 0, 70, time.Minute},
		{"no room, counted again", noRoom.CountUnplaced(true, after(0), after(40)), 0, 70, time.Minute},
		{"new quota", noRoom, 40, 70, 30 * time.Second},
		{"the clock of another replica is ahead", noRoom, 0, 5, 0},
		{"after a yield", yielded, 0, 100, time.Minute},
		{"no room after a yield", yielded.CountUnplaced(true, after(200), after(200)), 200, 230, 90 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.r.UnplacedFor(after(tc.quotaSince), after(tc.now)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if again := yielded.Yielded(after(200), after(300)); !yielded.WaitsSince.Equal(after(0)) || !again.WaitsSince.Equal(after(0)) || again.Yields != 2 {
		t.Errorf("%+v: the wait begins with the first quota", again)
	}
}

func TestRequeuedPauses(t *testing.T) {
	want := Record{Attempt: 1, Reason: "NotAdmitted", SleepsUntil: after(15)}
	if diff := cmp.Diff(want, Record{Attempt: 1, Repair: true}.Requeued("NotAdmitted", after(0))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEmptyRecordIsOfNoQuota(t *testing.T) {
	if (Record{}).IsCurrent(time.Time{}) {
		t.Error("a record without an attempt is current")
	}
	if (Record{Reclaimed: &Reclaim{}}).IsReclaimed() {
		t.Error("an active workload is reclaimed")
	}
}

func TestYieldPauseDoublesUpToItsMaximum(t *testing.T) {
	for yields, want := range map[int]time.Duration{1: 5 * time.Minute, 2: 10 * time.Minute, 9: 30 * time.Minute, 1000: 30 * time.Minute} {
		if got := YieldPause(yields); got != want {
			t.Errorf("after %d yields: got %s, want %s", yields, got, want)
		}
	}
}

func TestBeginKeepsOnlyPreferences(t *testing.T) {
	r := Record{}.Begin([]string{"cluster2"}, t0, "room", t0).
		Widen([]string{"cluster2", "cluster1"}, "late", after(30)).
		Begin([]string{"cluster3"}, t0, "again", after(7200))
	want := Record{Attempt: 2, QuotaReservedAt: t0, NominatedAt: after(7200), Nominated: []string{"cluster3"}, Preferences: []Preference{{Cluster: "cluster2"}, {Cluster: "cluster1"}, {Cluster: "cluster3"}}, Reason: "again"}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestBeginResetsTheWaitForAPlace(t *testing.T) {
	want := Record{}.Begin([]string{"cluster1"}, t0, "room", t0)
	for _, tc := range []struct {
		name string
		r    Record
	}{
		{"no room now", Record{UnplacedSince: t0}},
		{"no room earlier", Record{UnplacedSeconds: 1}},
		{"yielded", Record{Yields: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(want, tc.r.Begin([]string{"cluster1"}, t0, "room", t0)); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRevoked(t *testing.T) {
	r := Record{}.Begin([]string{"cluster1"}, t0, "room", t0).Widen([]string{"cluster1", "cluster2"}, "late", after(30))
	both := []string{"cluster1", "cluster2"}
	for _, tc := range []struct {
		name            string
		nominated, seen []string
		want            []string
	}{
		{"all present", []string{"cluster2", "cluster1"}, both, nil},
		{"the first removed", []string{"cluster2", "cluster3"}, both, []string{"cluster1"}},
		{"all removed", nil, both, both},
		{"the second never written", []string{"cluster1"}, []string{"cluster1"}, nil},
		{"none ever written", nil, nil, nil},
		{"a foreign cluster removed", both, []string{"cluster1", "cluster2", "cluster3"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, r.Revoked(tc.nominated, tc.seen), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("revoked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdopt(t *testing.T) {
	r := Record{}.Begin([]string{"a"}, t0, "room", after(10))
	for _, tc := range []struct {
		name        string
		r           Record
		reserved    int
		attempt     int
		nominatedAt int
	}{
		{"another component added a cluster: the attempt continues", r, 0, 1, 10},
		{"another dispatcher nominated first", Record{}, 0, 1, 120},
		{"for other quota", r, 60, 2, 120},
		{"for other quota, and Kueue's clock is ahead", r, 180, 2, 120},
		{"for other quota, and Kueue's clock was set back", r, -60, 2, 120},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.r.Adopt([]string{"a", "b"}, after(tc.reserved), after(120))
			if got.Attempt != tc.attempt || !got.NominatedAt.Equal(after(tc.nominatedAt)) || !got.IsCurrent(after(tc.reserved)) {
				t.Errorf("got attempt %d at %s, want %d at %s", got.Attempt, got.NominatedAt, tc.attempt, after(tc.nominatedAt))
			}
			if foreign := got.Foreign([]string{"a", "b"}); len(foreign) > 0 {
				t.Errorf("adopted clusters are still foreign: %v", foreign)
			}
			if diff := cmp.Diff([]string{"a", "b"}, got.Sent()); diff != "" {
				t.Errorf("sent to (-want +got):\n%s", diff)
			}
		})
	}
}

// The nominations of a repaired eviction are the record's own, and belong to earlier quota.
func TestIsOutlived(t *testing.T) {
	r := Record{}.BeginRepair([]string{"a", "b"}, t0, "repair", after(60))
	ordinary := Record{}.Begin([]string{"a", "b"}, t0, "there is room", after(60))
	for _, tc := range []struct {
		name      string
		r         Record
		nominated []string
		reserved  int
		want      bool
	}{
		{"the same quota", r, []string{"a", "b"}, 0, false},
		{"other quota", r, []string{"a", "b"}, 90, true},
		{"other quota, and Kueue's clock is behind", r, []string{"a", "b"}, 30, true},
		{"other quota, one nomination was removed", r, []string{"b"}, 90, true},
		{"other quota, and another dispatcher nominates", r, []string{"a", "c"}, 90, false},
		{"no record", Record{}, []string{"a"}, 90, false},
		{"a record without its quota", Record{Attempt: 1, Nominated: []string{"a"}, Repair: true}, []string{"a"}, 90, false},
		{"other quota, and another dispatcher nominates the clusters of an ordinary attempt", ordinary, []string{"a", "b"}, 90, false},
		{"widened repair", r.Widen([]string{"a", "b", "c"}, "late", after(90)), []string{"a", "b", "c"}, 90, true},
		{"returned to its queue after a repair", r.Requeued("EvictionRepaired", after(95)), []string{"a", "b"}, 120, false},
		{"new attempt after a repair", r.Begin([]string{"a", "b"}, after(90), "there is room", after(95)), []string{"a", "b"}, 120, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.r.IsOutlived(tc.nominated, after(tc.reserved)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// Users may write the annotation. A time in the future must not stop the clock of a yield, of giving
// up or of the ledger.
func TestUntil(t *testing.T) {
	now, past, soon, future := after(0), after(-60), after(30), after(3600)
	never := time.Time{}
	for _, tc := range []struct {
		name     string
		of, want Record
	}{
		{"the past stays", Record{NominatedAt: past, WidenedAt: past, UnplacedSince: past, LastYield: past, WaitsSince: past},
			Record{NominatedAt: past, WidenedAt: past, UnplacedSince: past, LastYield: past, WaitsSince: past}},
		{"unset times stay unset", Record{Attempt: 1}, Record{Attempt: 1}},
		{"clock of another replica", Record{UnplacedSince: soon, LastYield: soon, WaitsSince: soon}, Record{UnplacedSince: soon, LastYield: soon, WaitsSince: soon}},
		{"nominations happened by now", Record{NominatedAt: soon, WidenedAt: future}, Record{NominatedAt: now, WidenedAt: now}},
		{"waits that begin in the future have not begun", Record{UnplacedSince: future, LastYield: future, WaitsSince: future, Yields: 2},
			Record{UnplacedSince: never, LastYield: never, WaitsSince: never, Yields: 2}},
		{"a pause ends in the future", Record{SleepsUntil: future}, Record{SleepsUntil: future}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.of.Until(now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// explain shows the record on the terminals of administrators.
func TestDecodeDropsControlCharacters(t *testing.T) {
	const forged, clean = "\x1b[2Jall clear\u202e\r\n\x07", "[2Jall clear"
	text := Record{Attempt: 1, Nominated: []string{forged}, Preferences: []Preference{{Cluster: forged, Avoid: true, Why: forged}}, Reason: forged, Reclaimed: &Reclaim{Policy: forged, Cause: forged}}.Encode()
	got, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: text})
	if err != nil {
		t.Fatal(err)
	}
	want := Record{Attempt: 1, Nominated: []string{clean}, Preferences: []Preference{{Cluster: clean, Avoid: true, Why: clean}}, Reason: clean, Reclaimed: &Reclaim{Policy: clean, Cause: clean}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
