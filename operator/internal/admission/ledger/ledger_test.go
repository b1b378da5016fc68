package ledger

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestEntriesAreDropped(t *testing.T) {
	sampled := func(seconds int) map[string]SampleTimes {
		return map[string]SampleTimes{"cluster1": {Devices: after(seconds)}, "cluster2": {Devices: after(seconds)}}
	}
	for _, tc := range []struct {
		name   string
		change func(*Ledger)
		want   map[string]int64
	}{
		{"without admission an entry outlives newer samples", func(l *Ledger) { l.Expire(sampled(3600), after(60)) },
			map[string]int64{"cluster1": 8, "cluster2": 8}},
		{"admission drops the entries on other clusters", func(l *Ledger) { l.MarkAdmitted("a", "cluster2", after(10), false) },
			map[string]int64{"cluster2": 8}},
		{"a sample within the settling time does not show the pods", func(l *Ledger) {
			l.MarkAdmitted("a", "cluster2", after(10), false)
			l.Expire(sampled(14), after(20))
		}, map[string]int64{"cluster2": 8}},
		{"a sample after the settling time does", func(l *Ledger) {
			l.MarkAdmitted("a", "cluster2", after(10), false)
			l.Expire(sampled(16), after(20))
		}, map[string]int64{}},
		{"within the TTL all stay", func(l *Ledger) { l.Expire(nil, after(600)) }, map[string]int64{"cluster1": 8, "cluster2": 8}},
		{"the TTL drops everything", func(l *Ledger) { l.Expire(nil, after(601)) }, map[string]int64{}},
		{"release drops everything", func(l *Ledger) { l.Release("a") }, map[string]int64{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(5*time.Second, 10*time.Minute)
			l.Debit(entry("a", "cluster1"))
			l.Debit(entry("a", "cluster2"))
			tc.change(l)
			if diff := cmp.Diff(tc.want, l.DevicesByCluster()); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReleaseReportsEntriesOnce(t *testing.T) {
	l := New(5*time.Second, 10*time.Minute)
	l.Debit(entry("a", "cluster1"))
	if !l.Release("a") || l.Release("a") {
		t.Error("Release must return true exactly once")
	}
}

// The copy of an ended attempt may run for a moment longer. It counts for other workloads,
// but not for the workload's own next attempt, which must not remove it either.
func TestEndedEntriesOutliveTheNextAttempt(t *testing.T) {
	l := New(5*time.Second, 10*time.Minute)
	l.Debit(entry("a", "cluster1"))
	if !l.MarkEnded("a", after(1)) || l.MarkEnded("a", after(60)) {
		t.Error("MarkEnded must return true exactly once")
	}
	next := entry("a", "cluster2")
	next.DebitedAt = after(2)
	if !l.Commit(l.View(), "a", nil, []Entry{next}, nil) {
		t.Fatal("commit failed")
	}
	for _, tc := range []struct {
		name    string
		uid     string
		sampled int
		want    int64
	}{
		{"another workload within the settling time", "b", 6, 8},
		{"another workload after the settling time", "b", 7, 0},
		{"the workload itself", "a", 6, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := l.View().Devices("cluster1", after(tc.sampled), tc.uid, podSet(8, 1)); got != tc.want {
				t.Errorf("%d devices reserved, want %d", got, tc.want)
			}
		})
	}

	l.MarkEnded("a", after(2))
	l.Debit(next)
	if got := l.DevicesByCluster()["cluster2"]; got != 8 {
		t.Errorf("%d devices reserved after a nomination to the cluster of an ended attempt, want 8", got)
	}
	l.Expire(map[string]SampleTimes{"cluster1": {Devices: after(7)}, "cluster2": {Devices: after(7)}}, after(8))
	if diff := cmp.Diff(map[string]int64{"cluster2": 8}, l.DevicesByCluster()); diff != "" {
		t.Errorf("devices at the end (-want +got):\n%s", diff)
	}
}

func TestCommitReplacesTheWorkloadsEntries(t *testing.T) {
	l := New(5*time.Second, 10*time.Minute)
	l.Debit(entry("b", "cluster1"))
	// The steps build on each other.
	for _, tc := range []struct {
		name     string
		kept     []string
		clusters []string
		want     map[string]int64
	}{
		{"first choice", nil, []string{"cluster1"}, map[string]int64{"cluster1": 16}},
		{"second choice after a failed write", nil, []string{"cluster2"}, map[string]int64{"cluster1": 8, "cluster2": 8}},
		{"nomination widened", []string{"cluster2"}, []string{"cluster1"}, map[string]int64{"cluster1": 16, "cluster2": 8}},
		{"response to the write lost", []string{"cluster2", "cluster1"}, nil, map[string]int64{"cluster1": 16, "cluster2": 8}},
		{"no room left", nil, nil, map[string]int64{"cluster1": 8}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var entries []Entry
			for _, c := range tc.clusters {
				entries = append(entries, entry("a", c))
			}
			if !l.Commit(l.View(), "a", tc.kept, entries, nil) {
				t.Fatal("commit failed")
			}
			if diff := cmp.Diff(tc.want, l.DevicesByCluster()); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCommitFailsAfterAnyChange(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Ledger)
		want   bool
	}{
		{"no change", func(*Ledger) {}, true},
		{"a debit that exists already", func(l *Ledger) { l.Debit(entry("b", "cluster1")) }, true},
		{"release of an unknown workload", func(l *Ledger) { l.Release("c") }, true},
		{"nothing to expire", func(l *Ledger) { l.Expire(nil, after(1)) }, true},
		{"a workload without devices", func(l *Ledger) { l.Debit(Entry{UID: "c", Cluster: "cluster1"}) }, true},
		{"a running workload that has not changed", func(l *Ledger) { l.PutRunning(Running{UID: "r", Cluster: "cluster1"}) }, true},
		{"a running workload with another priority", func(l *Ledger) { l.PutRunning(Running{UID: "r", Cluster: "cluster1", Priority: 1}) }, false},
		{"commit without effect", func(l *Ledger) { l.Commit(l.View(), "c", nil, nil, nil) }, true},
		{"commit of another workload", func(l *Ledger) { l.Commit(l.View(), "c", nil, []Entry{entry("c", "cluster1")}, nil) }, false},
		{"debit", func(l *Ledger) { l.Debit(entry("c", "cluster1")) }, false},
		{"admission", func(l *Ledger) { l.MarkAdmitted("b", "cluster1", after(1), true) }, false},
		{"pods ready", func(l *Ledger) { l.MarkAdmitted("b", "cluster1", after(1), true); l.MarkPodsReady("b", after(1)) }, false},
		{"end", func(l *Ledger) { l.MarkEnded("b", after(1)) }, false},
		{"release", func(l *Ledger) { l.Release("b") }, false},
		{"credit", func(l *Ledger) { l.Credit(Credit{Cluster: "cluster1", FinishedAt: t0}) }, false},
		{"expiry", func(l *Ledger) { l.Expire(nil, after(3601)) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(5*time.Second, time.Hour)
			l.Debit(entry("b", "cluster1"))
			l.PutRunning(Running{UID: "r", Cluster: "cluster1"})
			v := l.View()
			tc.change(l)
			before := l.DevicesByCluster()
			if got := l.Commit(v, "a", nil, []Entry{entry("a", "cluster1")}, nil); got != tc.want {
				t.Fatalf("commit returned %t, want %t", got, tc.want)
			}
			if tc.want {
				before["cluster1"] += 8
			}
			if diff := cmp.Diff(before, l.DevicesByCluster()); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// Many workloads compete for ten slots. Whatever the interleaving, the reservations never
// exceed the capacity, and no slot stays unused while a workload waits.
func TestConcurrentCommitsNeverExceedCapacity(t *testing.T) {
	const workloads, capacity, rounds = 64, 10, 50
	l := New(time.Second, time.Hour)
	p := podSet(8, 1)
	reserve := func(uid string) bool {
		for {
			v := l.View()
			if v.Slots("cluster1", time.Time{}, uid, p, 0) >= capacity {
				return false
			}
			if l.Commit(v, uid, nil, []Entry{entry(uid, "cluster1")}, nil) {
				return true
			}
		}
	}
	var finished atomic.Bool
	var checker, workers sync.WaitGroup
	checker.Go(func() {
		for !finished.Load() {
			if got := l.View().Slots("cluster1", time.Time{}, "", p, 0); got > capacity {
				t.Errorf("%d slots reserved, capacity is %d", got, capacity)
				return
			}
		}
	})
	var reserved atomic.Int64
	for w := range workloads {
		workers.Go(func() {
			uid := fmt.Sprint("workload-", w)
			for range rounds {
				if reserve(uid) {
					reserved.Add(1)
					l.Release(uid)
				}
			}
			reserve(uid)
		})
	}
	workers.Wait()
	finished.Store(true)
	checker.Wait()
	if reserved.Load() == 0 {
		t.Error("no workload ever reserved a slot")
	}
	if got := l.View().Slots("cluster1", time.Time{}, "", p, 0); got != capacity {
		t.Errorf("%d slots reserved at the end, want %d", got, capacity)
	}
}

// An elastic job that grows in place keeps its cluster and priority. What a later workload may preempt
// there grows with it.
func TestRunningWorkloadChanges(t *testing.T) {
	l := New(time.Second, time.Hour)
	podSets := func(pods int64) []shape.PodSet {
		return []shape.PodSet{{Resource: "nvidia.com/gpu", DevicesPerPod: 1, Pods: pods}}
	}
	for _, pods := range []int64{2, 5, 1} {
		l.PutRunning(Running{UID: "elastic", Cluster: "cluster1", PodSets: podSets(pods)})
		if running := l.View().Running("cluster1"); len(running) != 1 || running[0].PodSets[0].Pods != pods {
			t.Errorf("running %v, want one workload of %d pods", running, pods)
		}
	}
}

// Metrics show since when the oldest reservation of each cluster exists.
func TestOldestByCluster(t *testing.T) {
	l := New(time.Second, time.Hour)
	for i, uid := range []string{"b", "a", "c"} {
		e := entry(uid, "cluster1")
		e.DebitedAt = after([]int{5, 2, 9}[i])
		l.Debit(e)
	}
	l.Debit(entry("a", "cluster2"))
	waits := entry("component", "cluster1") // was not sent there yet, so that no sample can show it
	waits.DecidedBy, waits.DebitedAt = "a", after(1)
	l.Debit(waits)
	if diff := cmp.Diff(map[string]time.Time{"cluster1": after(2), "cluster2": t0}, l.OldestByCluster()); diff != "" {
		t.Errorf("oldest (-want +got):\n%s", diff)
	}
	if clusters, podSets := l.Reserved("a"); !slices.Equal(clusters, []string{"cluster1", "cluster2"}) || len(podSets) != 1 {
		t.Errorf("a has reserved %v on %v, want one pod set on both clusters", podSets, clusters)
	}
}

// A component that waits for its own decision keeps its devices while its job runs on the cluster.
func TestEntriesOfComponentsLiveAsLongAsTheirJob(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Ledger)
		want   int64
	}{
		{"component 0 runs", func(*Ledger) {}, 8},
		{"component 0 was not admitted", func(l *Ledger) { l.removeRunning("primary") }, 0},
		{"component 0 runs elsewhere", func(l *Ledger) { l.PutRunning(Running{UID: "primary", Cluster: "cluster2"}) }, 0},
		{"component 0 has ended", func(l *Ledger) { l.MarkEnded("primary", after(1)) }, 0},
		{"the component has lost its quota", func(l *Ledger) { l.MarkEnded("component", after(1)) }, 0},
		{"the component was decided", func(l *Ledger) { l.Debit(entry("component", "cluster1")) }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(time.Second, time.Minute)
			l.PutRunning(Running{UID: "primary", Cluster: "cluster1"})
			e := entry("component", "cluster1")
			e.DecidedBy = "primary"
			l.Debit(e)
			tc.change(l)
			l.Expire(nil, after(61))
			if got := l.DevicesByCluster()["cluster1"]; got != tc.want {
				t.Errorf("%d devices reserved after the TTL, want %d", got, tc.want)
			}
		})
	}
}

// Only the first report of an admission counts: its time decides when samples show the pods.
func TestMarkAdmittedReportsTheFirstAdmission(t *testing.T) {
	l := New(time.Second, time.Hour)
	l.Debit(entry("a", "cluster1"))
	for i, tc := range []struct {
		uid, cluster string
		want         bool
	}{{"unknown", "cluster1", false}, {"a", "cluster2", false}, {"a", "cluster1", true}, {"a", "cluster1", false}} {
		if got := l.MarkAdmitted(tc.uid, tc.cluster, after(i), false); got != tc.want {
			t.Errorf("%s on %s: %t, want %t", tc.uid, tc.cluster, got, tc.want)
		}
	}
}

// A later decision may see other quota, so that the cluster admits another number of pods. The times of
// the entry stay. After the admission the number does not change.
func TestCommitReplacesThePodsOfAnEntry(t *testing.T) {
	sized := func(pods int64, decidedBy string) Entry {
		e := entry("w", "cluster1")
		e.PodSets, e.DecidedBy, e.DebitedAt = []shape.PodSet{podSet(8, pods)}, decidedBy, after(int(pods))
		return e
	}
	for _, tc := range []struct {
		name       string
		old, later Entry
		isAdmitted bool
		want       int64
	}{
		{"more pods", sized(1, ""), sized(3, ""), false, 24},
		{"fewer pods", sized(3, ""), sized(1, ""), false, 8},
		{"admitted", sized(3, ""), sized(1, ""), true, 24},
		{"decided by the primary component later", sized(3, ""), sized(1, "primary"), false, 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(time.Second, time.Hour)
			l.Debit(tc.old)
			if tc.isAdmitted {
				l.MarkAdmitted("w", "cluster1", t0, false)
			}
			if !l.Commit(l.View(), "w", []string{"cluster1"}, []Entry{tc.later}, nil) {
				t.Fatal("the ledger did not change")
			}
			if got := l.DevicesByCluster()["cluster1"]; got != tc.want {
				t.Errorf("%d devices, want %d", got, tc.want)
			}
			if got := l.OldestByCluster()["cluster1"]; !got.Equal(tc.old.DebitedAt) {
				t.Errorf("debited at %s, want %s", got, tc.old.DebitedAt)
			}
			before := l.View()
			if !l.Commit(before, "w", []string{"cluster1"}, []Entry{tc.later}, nil) || l.View().generation != before.generation {
				t.Error("the same decision changes the ledger again")
			}
		})
	}
}
