package dispatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestDispatchRoundTrip(t *testing.T) {
	d := Record{}.Begin([]string{"cluster2"}, "room", t0).
		Widen([]string{"cluster2", "cluster1"}, "late", t0.Add(30*time.Second)).
		Yielded(t0.Add(time.Hour), t0.Add(time.Hour)).
		Begin([]string{"cluster3"}, "again", t0.Add(2*time.Hour))
	got, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: d.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, got); diff != "" {
		t.Errorf("round trip (-want +got):\n%s", diff)
	}
	asleep := got.Yielded(t0.Add(3*time.Hour), t0.Add(3*time.Hour))
	if !asleep.SleepsUntil.Equal(t0.Add(3*time.Hour+timing.YieldSleep)) || !asleep.Woken().SleepsUntil.IsZero() || asleep.Woken().Yields != 1 {
		t.Errorf("who yields sleeps until %s, and wakes; after a nomination it is the first time again", asleep.SleepsUntil)
	}
	if got.Attempt != 2 || got.Yields != 0 || !got.SleepsUntil.IsZero() || cmp.Diff([]string{"cluster2", "cluster1", "cluster3"}, got.EverNominated) != "" ||
		cmp.Diff([]string{"cluster3"}, got.Nominated) != "" || !got.WidenedAt.IsZero() {
		t.Errorf("a new attempt keeps what was ever nominated and nothing else: %+v", got)
	}
	if _, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: "{"}); err == nil {
		t.Error("a broken annotation must be an error")
	}
}

// Whatever is kept of a time without a place ends with a place.
func TestAPlaceEndsTheWait(t *testing.T) {
	for name, d := range map[string]Record{
		"no room": {UnplacedSince: t0}, "no room before": {UnplacedSeconds: 1}, "it yielded": {Yields: 1}, "it sleeps": {SleepsUntil: t0},
	} {
		want := Record{}.Begin([]string{"cluster1"}, "room", t0)
		if diff := cmp.Diff(want, d.Begin([]string{"cluster1"}, "room", t0)); diff != "" {
			t.Errorf("%s: what is left of it (-want +got):\n%s", name, diff)
		}
	}
}

func TestPhases(t *testing.T) {
	widen := v1alpha1.Widen{AfterSeconds: 30}
	once := Record{NominatedAt: t0}
	again := Record{NominatedAt: t0, WidenedAt: t0.Add(31 * time.Second)}
	for _, tc := range []struct {
		name  string
		d     Record
		at    time.Duration
		phase Stage
		after time.Duration
	}{
		{"at first", once, 0, StageWait, 30 * time.Second},
		{"just before", once, 29 * time.Second, StageWait, time.Second},
		{"widening", once, 30 * time.Second, StageWiden, 30 * time.Second},
		{"widened", again, 40 * time.Second, StageWait, 20 * time.Second},
		{"healing", again, 60 * time.Second, StageHeal, 60 * time.Second},
		{"all", again, 120 * time.Second, StageAll, 60 * time.Second},
	} {
		if phase, after := tc.d.Stage(widen, t0.Add(tc.at)); phase != tc.phase || after != tc.after {
			t.Errorf("%s: got %s and %s, want %s and %s", tc.name, phase, after, tc.phase, tc.after)
		}
	}
}

func TestWiderOnlyAdds(t *testing.T) {
	one := int32(1)
	usable := []string{"a", "b", "c", "d"}
	for _, tc := range []struct {
		name  string
		phase Stage
		ever  []string
		order []string
		by    *int32
		want  []string
	}{
		{"all with room", StageWiden, nil, []string{"b", "a", "c"}, nil, []string{"a", "b", "c"}},
		{"one more", StageWiden, nil, []string{"b", "a", "c"}, &one, []string{"a", "b"}},
		{"no room elsewhere", StageWiden, []string{"d"}, []string{"a"}, nil, []string{"a"}},
		{"what was ever nominated, without room", StageHeal, []string{"d", "gone"}, nil, nil, []string{"a", "d"}},
		{"and one more with room", StageHeal, []string{"d"}, []string{"b", "c"}, &one, []string{"a", "d", "b"}},
		{"every active one", StageAll, nil, nil, nil, []string{"a", "b", "c", "d"}},
		{"a nominated one that lost its connection stays", StageAll, nil, nil, nil, []string{"a", "b", "c", "d"}},
	} {
		got := Record{EverNominated: tc.ever}.WidenedList(tc.phase, []string{"a"}, tc.order, usable, v1alpha1.Widen{By: tc.by})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	if got := (Record{}).WidenedList(StageAll, []string{"lost"}, nil, usable, v1alpha1.Widen{}); got[0] != "lost" {
		t.Errorf("revoking a nominated cluster would be a livelock: %v", got)
	}
}

func TestRevoked(t *testing.T) {
	d := Record{}.Begin([]string{"cluster1"}, "room", t0).Widen([]string{"cluster1", "cluster2"}, "late", t0.Add(30*time.Second))
	both := []string{"cluster1", "cluster2"}
	for _, tc := range []struct {
		name            string
		nominated, seen []string
		want            []string
	}{
		{"all are there", []string{"cluster2", "cluster1"}, both, nil},
		{"one is gone", []string{"cluster2", "cluster3"}, both, []string{"cluster1"}},
		{"all are gone", nil, both, both},
		{"the second was never written", []string{"cluster1"}, []string{"cluster1"}, nil},
		{"nothing was written before we stopped", nil, nil, nil},
		{"somebody else's is gone", both, []string{"cluster1", "cluster2", "cluster3"}, nil},
	} {
		if diff := cmp.Diff(tc.want, d.Revoked(tc.nominated, tc.seen), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestAdopt(t *testing.T) {
	d := Record{}.Begin([]string{"a"}, "room", t0)
	for _, tc := range []struct {
		name      string
		d         Record
		reserved  time.Duration
		now       time.Duration
		attempt   int
		nominated time.Duration
	}{
		{"somebody added a cluster: the attempt goes on", d, -time.Second, time.Minute, 1, 0},
		{"another dispatcher was there before us", Record{}, 0, time.Minute, 1, time.Minute},
		{"a repair's nomination outlived the eviction", d, time.Minute, 2 * time.Minute, 2, 2 * time.Minute},
		{"by a clock that is ahead of ours", d, 3 * time.Minute, 2 * time.Minute, 2, 3 * time.Minute},
	} {
		reserved := t0.Add(tc.reserved)
		got := tc.d.Adopt([]string{"a", "b"}, reserved, t0.Add(tc.now))
		if got.Attempt != tc.attempt || !got.NominatedAt.Equal(t0.Add(tc.nominated)) || !got.IsCurrent(reserved) {
			t.Errorf("%s: attempt %d of %s, want %d of %s", tc.name, got.Attempt, got.NominatedAt, tc.attempt, t0.Add(tc.nominated))
		}
		if len(got.Foreign([]string{"a", "b"})) > 0 || cmp.Diff([]string{"a", "b"}, got.EverNominated) != "" {
			t.Errorf("%s: it is ours from now on, got %+v", tc.name, got)
		}
	}
}

// Every write is looked at again at once: a phase must not widen with each look.
func TestHealingWidensOnce(t *testing.T) {
	one := int32(1)
	widen := v1alpha1.Widen{AfterSeconds: 30, By: &one}
	order := []string{"a", "b", "c", "d", "e", "f"}
	d := Record{EverNominated: []string{"e"}}.Begin([]string{"a"}, "room", t0)
	for _, tc := range []struct {
		at   time.Duration
		want []string
	}{
		{31 * time.Second, []string{"a", "b"}},
		{61 * time.Second, []string{"a", "b", "e", "c"}},
		{62 * time.Second, []string{"a", "b", "e", "c"}},
		{90 * time.Second, []string{"a", "b", "e", "c"}},
		{120 * time.Second, []string{"a", "b", "e", "c", "d", "f"}},
	} {
		phase, _ := d.Stage(widen, t0.Add(tc.at))
		wider := d.WidenedList(phase, d.Nominated, order, order, widen)
		if len(wider) > len(d.Nominated) {
			d = d.Widen(wider, "late", t0.Add(tc.at))
		}
		if diff := cmp.Diff(tc.want, wider); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", tc.at, diff)
		}
	}
}
