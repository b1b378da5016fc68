package ledger

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestViewCountsOtherWorkloads(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		entryDevices, entry    int64
		devices                int64
		entryModel             string
		wantSlots, wantDevices int64
	}{
		{"same shape", 8, 3, 8, h100, 3, 24},
		{"a larger pod takes several slots", 8, 1, 4, h100, 2, 8},
		{"slots of a larger pod are rounded up", 8, 1, 3, h100, 3, 8},
		{"smaller pods share a node", 1, 4, 8, h100, 1, 4},
		{"smaller pods fill several nodes", 1, 9, 8, h100, 2, 9},
		{"another model takes nothing", 8, 3, 8, "NVIDIA-A100-SXM4-80GB", 0, 0},
		{"an unknown model may be the same", 8, 3, 8, "", 3, 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reserved := podSet(tc.entryDevices, tc.entry)
			reserved.Model = tc.entryModel
			l := New(time.Second, time.Hour)
			l.Debit(Entry{UID: "other", Cluster: "cluster1", DebitedAt: t0, PodSets: []shape.PodSet{reserved}})
			p, v := podSet(tc.devices, 1), l.View()
			if got := v.Slots("cluster1", time.Time{}, "own", p, 0); got != tc.wantSlots {
				t.Errorf("slots: got %d, want %d", got, tc.wantSlots)
			}
			if got := v.Devices("cluster1", time.Time{}, "own", p); got != tc.wantDevices {
				t.Errorf("devices: got %d, want %d", got, tc.wantDevices)
			}
			if got := v.Slots("cluster1", time.Time{}, "other", p, 0); got != 0 {
				t.Errorf("a workload's own entry takes %d slots, want 0", got)
			}
			if got := v.Slots("cluster2", time.Time{}, "own", p, 0); got != 0 {
				t.Errorf("an entry on cluster1 takes %d slots on cluster2, want 0", got)
			}
		})
	}
}

func TestViewExcludesReadyPodsOneSecondAfterPodsReady(t *testing.T) {
	l := New(time.Minute, 10*time.Minute)
	l.Debit(entry("a", "cluster1"))
	if l.MarkPodsReady("a", t0) {
		t.Error("MarkPodsReady returned true before an admission")
	}
	l.MarkAdmitted("a", "cluster1", after(10), false)
	reserved := func(sampled int) int64 {
		return l.View().Devices("cluster1", after(sampled), "other", podSet(8, 1))
	}
	if got := reserved(40); got != 8 {
		t.Errorf("within the settling time %d devices are reserved, want 8", got)
	}
	if !l.MarkPodsReady("a", after(20)) || l.MarkPodsReady("a", after(25)) {
		t.Error("MarkPodsReady must return true exactly once")
	}
	if within, later := reserved(21), reserved(22); within != 8 || later != 0 {
		t.Errorf("reserved devices 1 s and 2 s after PodsReady: got %d and %d, want 8 and 0", within, later)
	}
}

// Devices that samples showed before the workload ended need no reservation afterwards.
func TestViewAfterEnd(t *testing.T) {
	for _, tc := range []struct {
		name             string
		reportsPodsReady bool
		podsReadyAt      time.Time
		ended, sampled   int
		want             int64
	}{
		{"pods were ready", true, after(10), 20, 15, 0},
		{"pods were not ready", true, time.Time{}, 20, 16, 8},
		{"pods were not ready within four settling times", true, time.Time{}, 31, 31, 0},
		{"admitted long before the end", false, time.Time{}, 20, 16, 0},
		{"admitted just before the end", false, time.Time{}, 12, 16, 8},
		{"admitted just before the end, newer sample", false, time.Time{}, 12, 18, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(5*time.Second, 10*time.Minute)
			l.Debit(entry("a", "cluster1"))
			l.MarkAdmitted("a", "cluster1", after(10), tc.reportsPodsReady)
			if !tc.podsReadyAt.IsZero() {
				l.MarkPodsReady("a", tc.podsReadyAt)
			}
			l.MarkEnded("a", after(tc.ended))
			if got := l.View().Devices("cluster1", after(tc.sampled), "other", podSet(8, 1)); got != tc.want {
				t.Errorf("%d devices reserved with a sample of %d s, want %d", got, tc.sampled, tc.want)
			}
		})
	}
}

func TestCreditExpiresWithNewerSample(t *testing.T) {
	l := New(5*time.Second, 10*time.Minute)
	l.Credit(Credit{Cluster: "cluster1", PodSets: []shape.PodSet{podSet(8, 1)}, FinishedAt: t0})
	for sampled, want := range map[int]int64{-1: 8, 0: 0, 1: 0} {
		if got := l.View().Credited("cluster1", after(sampled), podSet(1, 1)); got != want {
			t.Errorf("%d devices credited beside a sample of %d s, want %d", got, sampled, want)
		}
	}
	for _, tc := range []struct{ sampled, now int }{{5, 7}, {-600, 600}} {
		l.Expire(map[string]SampleTimes{"cluster1": {Devices: after(tc.sampled)}}, after(tc.now))
		if got := l.View().Credited("cluster1", after(-1), podSet(1, 1)); got != 8 {
			t.Errorf("%d devices credited after %d s with a sample of %d s, want 8", got, tc.now, tc.sampled)
		}
	}
	l.Expire(map[string]SampleTimes{"cluster1": {Devices: after(6)}}, after(7))
	if got := l.View().Credited("cluster1", after(-1), podSet(1, 1)); got != 0 {
		t.Errorf("%d devices credited after a newer sample, want 0", got)
	}
}

// Explanations list the reservations that samples do not show yet.
func TestEntriesOfACluster(t *testing.T) {
	l := New(5*time.Second, 10*time.Minute)
	for _, uid := range []string{"sent", "running"} {
		l.Debit(entry(uid, "cluster1"))
	}
	l.MarkAdmitted("running", "cluster1", t0, false)
	l.MarkPodsReady("running", t0)
	v := l.View()
	if got := v.Entries("cluster1", after(2)); len(got) != 1 || got[0].UID != "sent" {
		t.Errorf("entries %+v, want the sent workload alone", got)
	}
	if got := v.Without([]string{"sent"}).Entries("cluster1", t0); len(got) != 1 || got[0].UID != "running" {
		t.Errorf("entries %+v without the sent workload, want the running one alone", got)
	}
	if got := v.Without(nil).Entries("cluster1", t0); len(got) != 2 {
		t.Errorf("entries %+v beside an older sample, want both", got)
	}
}

// Devices of different resources are different devices, also if their model is unknown.
func TestDevicesOfAnotherResource(t *testing.T) {
	nvidia, amd := podSet(8, 1), podSet(8, 1)
	nvidia.Model, amd.Model, amd.Resource = "", "", "amd.com/gpu"
	if MayShareDevices(nvidia, amd) {
		t.Error("pods with GPUs of two vendors share devices")
	}
}

// A cluster whose samples stay away keeps no credit forever.
func TestCreditExpiresWithoutSamples(t *testing.T) {
	l := New(5*time.Second, 10*time.Minute)
	l.Credit(Credit{Cluster: "cluster1", PodSets: []shape.PodSet{podSet(8, 1)}, FinishedAt: t0})
	l.Expire(nil, after(601))
	if got := l.View().Credited("cluster1", after(-1), podSet(1, 1)); got != 0 {
		t.Errorf("%d devices credited after the TTL, want 0", got)
	}
}

func TestViewReserves(t *testing.T) {
	l := New(time.Second, time.Hour)
	l.Debit(Entry{UID: "a", Cluster: "cluster1", PodSets: []shape.PodSet{podSet(8, 1)}, DebitedAt: after(0)})
	if v := l.View(); !v.Reserves("a", "cluster1") || v.Reserves("a", "cluster2") || v.Reserves("b", "cluster1") {
		t.Error("want one reservation, of a on cluster1")
	}
	l.MarkEnded("a", after(1))
	if l.View().Reserves("a", "cluster1") {
		t.Error("the reservation of an attempt that ended counts")
	}
}
