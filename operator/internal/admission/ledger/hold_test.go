package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func hold(uid, gate, cluster, model string) *Hold {
	p := podSet(8, 1)
	p.Model = model
	return &Hold{UID: uid, Gate: gate, Cluster: cluster, PodSets: []shape.PodSet{p}, Since: t0}
}

func TestHoldsPerGateAndDevices(t *testing.T) {
	const a100 = "NVIDIA-A100-SXM4-80GB"
	for _, tc := range []struct {
		name string
		next *Hold
		want []string
	}{
		{"the same workload on another cluster", hold("a", "gpu", "cluster2", h100), []string{"a cluster2"}},
		{"another workload for the same devices", hold("b", "gpu", "cluster2", h100), []string{"b cluster2"}},
		{"another workload for any model", hold("b", "gpu", "cluster2", ""), []string{"b cluster2"}},
		{"another workload for other devices", hold("b", "gpu", "cluster2", a100), []string{"a cluster1", "b cluster2"}},
		{"another gate", hold("b", "batch", "cluster2", h100), []string{"a cluster1", "b cluster2"}},
		{"another gate on an earlier cluster", hold("b", "batch", "cluster0", h100), []string{"b cluster0", "a cluster1"}},
		{"an earlier gate on the same cluster", hold("b", "batch", "cluster1", h100), []string{"b cluster1", "a cluster1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(0, 0)
			l.Commit(l.View(), "a", nil, nil, hold("a", "gpu", "cluster1", h100))
			if !l.Commit(l.View(), tc.next.UID, nil, nil, tc.next) {
				t.Fatal("the second commit failed")
			}
			var got []string
			for _, h := range l.View().Holds() {
				got = append(got, h.UID+" "+h.Cluster)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("holds (-want +got):\n%s", diff)
			}
		})
	}
}

// A hold ends with the workload's wait, and an unchanged one conflicts with no other commit.
func TestHoldsEnd(t *testing.T) {
	for name, end := range map[string]func(l *Ledger){
		"placed":       func(l *Ledger) { l.Commit(l.View(), "a", nil, []Entry{entry("a", "cluster1")}, nil) },
		"quota lost":   func(l *Ledger) { l.MarkEnded("a", t0) },
		"finished":     func(l *Ledger) { l.Release("a") },
		"wait is over": func(l *Ledger) { l.ReleaseHold("a") },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(0, 0)
			l.Commit(l.View(), "a", nil, nil, hold("a", "gpu", "cluster1", h100))
			before := l.View()
			l.Commit(before, "a", nil, nil, hold("a", "gpu", "cluster1", h100))
			if !l.Commit(before, "b", nil, nil, nil) {
				t.Error("the renewal of an unchanged hold changed the ledger")
			}
			if end(l); len(l.View().Holds()) != 0 {
				t.Errorf("still held: %v", l.View().Holds())
			}
		})
	}
}

func TestSmallerPodsUseSpareDevicesFirst(t *testing.T) {
	small := []shape.PodSet{podSet(1, 4)}
	for spare, want := range map[int64]int64{0: 1, 3: 1, 4: 0, 100: 0} {
		if got := SlotsTaken(small, podSet(8, 1), spare); got != want {
			t.Errorf("four 1-GPU pods with %d spare devices take %d nodes, want %d", spare, got, want)
		}
	}
}

func TestRunningWorkloadsEnd(t *testing.T) {
	l := New(0, 0)
	l.PutRunning(Running{UID: "a", Cluster: "cluster1", PodSets: []shape.PodSet{podSet(8, 1)}})
	if got := len(l.View().Running("cluster1")); got != 1 {
		t.Fatalf("%d running, want 1", got)
	}
	l.MarkEnded("a", t0)
	if got := len(l.View().Running("cluster1")); got != 0 {
		t.Errorf("%d running after the end, want none", got)
	}
}

// A hold that changes in any way replaces the former one: the other workloads go by it.
func TestHoldChanges(t *testing.T) {
	for name, change := range map[string]func(*Hold){
		"another cluster":   func(h *Hold) { h.Cluster = "cluster2" },
		"another gate":      func(h *Hold) { h.Gate = "batch" },
		"the mode":          func(h *Hold) { h.Shadow = true },
		"a higher priority": func(h *Hold) { h.Rank.Priority = 5 },
		"an earlier start":  func(h *Hold) { h.StartsBy = after(60) },
		"a wait for quota":  func(h *Hold) { h.Queues = []string{"cq"} },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(0, 0)
			next := hold("a", "gpu", "cluster1", h100)
			next.Workload = "team-a/a"
			l.Commit(l.View(), "a", nil, nil, hold("a", "gpu", "cluster1", h100))
			change(next)
			l.Commit(l.View(), "a", nil, nil, next)
			if diff := cmp.Diff([]Hold{*next}, l.View().HoldsOf(next.Gate)); diff != "" {
				t.Errorf("holds (-want +got):\n%s", diff)
			}
			if got := l.HeldFor("team-a/a"); got != next.Cluster {
				t.Errorf("%q is held for the workload, want %q", got, next.Cluster)
			}
			if others := len(l.View().HoldsOf("other")); l.HeldFor("team-a/b") != "" || others > 0 {
				t.Errorf("%d holds of another gate; for another workload %q", others, l.HeldFor("team-a/b"))
			}
		})
	}
}

// Pods of the same size or larger take whole nodes, and no devices that are left over on others.
func TestLargePodsTakeNoSpareDevices(t *testing.T) {
	for _, tc := range []struct {
		devices, pods, want int64
	}{{8, 1, 1}, {8, 2, 2}, {12, 2, 4}} {
		if got := SlotsTaken([]shape.PodSet{podSet(tc.devices, tc.pods)}, podSet(8, 1), 100); got != tc.want {
			t.Errorf("%d pods with %d GPUs take %d nodes of eight, want %d", tc.pods, tc.devices, got, tc.want)
		}
	}
}
