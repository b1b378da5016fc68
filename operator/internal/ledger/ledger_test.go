package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/shape"
)

func TestSlotsOfAnotherShape(t *testing.T) {
	for _, tc := range []struct {
		name             string
		theirs, pods     int64
		ours             int64
		theirModel       string
		wantSlots, wantD int64
	}{
		{"the same shape", 8, 3, 8, h100, 3, 24},
		{"larger pods take several of our slots", 8, 1, 4, h100, 2, 8},
		{"and the odd rest of one more", 8, 1, 3, h100, 3, 8},
		{"smaller pods may each spoil one slot", 1, 4, 8, h100, 4, 4},
		{"another model takes nothing", 8, 3, 8, "NVIDIA-A100-SXM4-80GB", 0, 0},
		{"an unknown model may be ours", 8, 3, 8, "", 3, 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(time.Second, time.Hour)
			l.Debit(Entry{UID: "them", Cluster: "cluster1", DebitedAt: t0,
				PodSets: []shape.PodSet{{Resource: "nvidia.com/gpu", Model: tc.theirModel, DevicesPerPod: tc.theirs, Pods: tc.pods}}})
			p := shape.PodSet{Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: tc.ours, Pods: 1}
			v := l.View()
			if got := v.Slots("cluster1", time.Time{}, "us", p); got != tc.wantSlots {
				t.Errorf("slots: got %d, want %d", got, tc.wantSlots)
			}
			if got := v.Devices("cluster1", time.Time{}, "us", p); got != tc.wantD {
				t.Errorf("devices: got %d, want %d", got, tc.wantD)
			}
			if got := v.Slots("cluster1", time.Time{}, "them", p) + v.Slots("cluster2", time.Time{}, "us", p); got != 0 {
				t.Errorf("one's own entry and other clusters' must not count, got %d", got)
			}
		})
	}
}

// Once Kueue tells that the pods run, a sample that is hardly newer shows them.
func TestLedgerShowsWhatRuns(t *testing.T) {
	p := job("a", 8, 1).PodSets
	l := New(time.Minute, 10*time.Minute)
	l.Debit(Entry{UID: "a", Cluster: "cluster1", PodSets: p, DebitedAt: t0})
	if l.MarkPodsReady("a", t0) {
		t.Error("nobody has admitted it")
	}
	l.MarkAdmitted("a", "cluster1", t0.Add(10*time.Second), false)
	promised := func(sampled time.Duration) int64 {
		return l.View().Devices("cluster1", t0.Add(sampled), "other", p[0])
	}
	if got := promised(40 * time.Second); got != 8 {
		t.Errorf("within the settling time %d devices are promised, want 8", got)
	}
	if !l.MarkPodsReady("a", t0.Add(20*time.Second)) || l.MarkPodsReady("a", t0.Add(25*time.Second)) {
		t.Error("that it runs is news once")
	}
	if before, after := promised(21*time.Second), promised(22*time.Second); before != 8 || after != 0 {
		t.Errorf("promised are %d devices in the second that its pods became ready in, and %d after it; want 8 and 0", before, after)
	}
}

func TestLedgerRelease(t *testing.T) {
	p := job("a", 8, 1).PodSets
	fill := func() *Ledger {
		l := New(5*time.Second, 10*time.Minute)
		for _, c := range []string{"cluster1", "cluster2"} {
			l.Debit(Entry{UID: "a", Cluster: c, PodSets: p, DebitedAt: t0})
		}
		return l
	}
	held := func(l *Ledger) [2]int64 {
		return [2]int64{l.DevicesByCluster()["cluster1"], l.DevicesByCluster()["cluster2"]}
	}
	sampled := func(at time.Duration) map[string]time.Time {
		return map[string]time.Time{"cluster1": t0.Add(at), "cluster2": t0.Add(at)}
	}

	l := fill()
	if l.Expire(sampled(time.Hour), t0.Add(time.Minute)); held(l) != [2]int64{8, 8} {
		t.Errorf("what nobody admitted stays, however new the sample: %v", held(l))
	}
	if l.MarkAdmitted("a", "cluster2", t0.Add(10*time.Second), false); held(l) != [2]int64{0, 8} {
		t.Errorf("admission releases the others: %v", held(l))
	}
	if l.Expire(sampled(14*time.Second), t0.Add(20*time.Second)); held(l) != [2]int64{0, 8} {
		t.Errorf("a sample within the settling time shows nothing yet: %v", held(l))
	}
	if l.Expire(sampled(16*time.Second), t0.Add(20*time.Second)); held(l) != [2]int64{0, 0} {
		t.Errorf("a newer sample shows it: %v", held(l))
	}
	if l = fill(); !l.Release("a") || held(l) != [2]int64{0, 0} || l.Release("a") {
		t.Errorf("the workload's end releases everything once: %v", held(l))
	}
	l = fill()
	if l.Expire(nil, t0.Add(11*time.Minute)); held(l) != [2]int64{0, 0} {
		t.Errorf("the TTL releases what nothing else did: %v", held(l))
	}
}

// What was cut short may run on for a moment where it was sent: others count on that,
// its own next attempt does not, and takes nothing of it back.
func TestLedgerKeepsWhatWasCutShort(t *testing.T) {
	p := job("a", 8, 1).PodSets
	l := New(5*time.Second, 10*time.Minute)
	l.Debit(Entry{UID: "a", Cluster: "cluster1", PodSets: p, DebitedAt: t0})
	if !l.MarkEnded("a", t0.Add(time.Second)) || l.MarkEnded("a", t0.Add(time.Minute)) {
		t.Error("it ends once")
	}
	l.Reserve("a", nil, func(View) []Entry {
		return []Entry{{UID: "a", Cluster: "cluster2", PodSets: p, DebitedAt: t0.Add(2 * time.Second)}}
	})
	for _, tc := range []struct {
		uid     string
		sampled time.Duration
		want    int64
	}{{"b", 6 * time.Second, 8}, {"b", 7 * time.Second, 0}, {"a", 6 * time.Second, 0}} {
		if got := l.View().Devices("cluster1", t0.Add(tc.sampled), tc.uid, p[0]); got != tc.want {
			t.Errorf("%d devices of others than %s on cluster1 beside a sample of %s, want %d", got, tc.uid, tc.sampled, tc.want)
		}
	}
	l.MarkEnded("a", t0.Add(2*time.Second))
	l.Debit(Entry{UID: "a", Cluster: "cluster2", PodSets: p, DebitedAt: t0.Add(2 * time.Second)})
	if got := l.DevicesByCluster()["cluster2"]; got != 8 {
		t.Errorf("%d devices held where it is sent again, want 8", got)
	}
	l.Expire(map[string]time.Time{"cluster1": t0.Add(7 * time.Second), "cluster2": t0.Add(7 * time.Second)}, t0.Add(8*time.Second))
	if diff := cmp.Diff(map[string]int64{"cluster2": 8}, l.DevicesByCluster()); diff != "" {
		t.Errorf("held in the end (-want +got):\n%s", diff)
	}
}

// What samples showed before the end they show after it, too.
func TestLedgerForgetsWhatWasShownBeforeItWasCutShort(t *testing.T) {
	p := job("a", 8, 1).PodSets
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	for _, tc := range []struct {
		name          string
		told          bool
		running       time.Time
		ends, sampled int
		want          int64
	}{
		{"its pods were ready", true, at(10), 20, 15, 0},
		{"its pods were not ready", true, time.Time{}, 20, 16, 8},
		{"its pods were not ready for long", true, time.Time{}, 31, 31, 0},
		{"admitted long ago", false, time.Time{}, 20, 16, 0},
		{"just admitted", false, time.Time{}, 12, 16, 8},
		{"just admitted, a sample later", false, time.Time{}, 12, 18, 0},
	} {
		l := New(5*time.Second, 10*time.Minute)
		l.Debit(Entry{UID: "a", Cluster: "cluster1", PodSets: p, DebitedAt: t0})
		l.MarkAdmitted("a", "cluster1", at(10), tc.told)
		if !tc.running.IsZero() {
			l.MarkPodsReady("a", tc.running)
		}
		l.MarkEnded("a", at(tc.ends))
		if got := l.View().Devices("cluster1", at(tc.sampled), "b", p[0]); got != tc.want {
			t.Errorf("%s: %d devices held beside a sample of %d s, want %d", tc.name, got, tc.sampled, tc.want)
		}
	}
}

// A workload holds what it is sent to: neither what came to nothing, nor less.
func TestReserveReplacesWhatCameToNothing(t *testing.T) {
	p := job("a", 8, 1).PodSets
	l := New(5*time.Second, 10*time.Minute)
	reserve := func(kept []string, clusters ...string) {
		l.Reserve("a", kept, func(View) (next []Entry) {
			for _, c := range clusters {
				next = append(next, Entry{UID: "a", Cluster: c, PodSets: p, DebitedAt: t0})
			}
			return next
		})
	}
	l.Debit(Entry{UID: "b", Cluster: "cluster1", PodSets: p, DebitedAt: t0})
	for _, tc := range []struct {
		name     string
		kept     []string
		clusters []string
		want     map[string]int64
	}{
		{"chosen", nil, []string{"cluster1"}, map[string]int64{"cluster1": 16}},
		{"chosen again, for the write failed", nil, []string{"cluster2"}, map[string]int64{"cluster1": 8, "cluster2": 8}},
		{"widened", []string{"cluster2"}, []string{"cluster1"}, map[string]int64{"cluster1": 16, "cluster2": 8}},
		{"a write whose answer was lost", []string{"cluster2", "cluster1"}, nil, map[string]int64{"cluster1": 16, "cluster2": 8}},
		{"no room any more", nil, nil, map[string]int64{"cluster1": 8}},
	} {
		reserve(tc.kept, tc.clusters...)
		if diff := cmp.Diff(tc.want, l.DevicesByCluster()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
