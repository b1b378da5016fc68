package ledger

import (
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// admitted is a workload that c1 admitted at t0 and whose pods are not ready.
func admitted(uid, namespace string) Running {
	return Running{UID: uid, Namespace: namespace, Cluster: "c1", Since: t0, ReportsPodsReady: true}
}

func startedAt(r Running, seconds int) Running {
	r.StartedAt = after(seconds)
	return r
}

func admittedAt(r Running, seconds int) Running {
	r.Since = after(seconds)
	return r
}

// A cluster is doubted after workloads did not start there, until one does. Then one at a time may try.
func TestDoubt(t *testing.T) {
	hangs := int(timing.HangsAfter / time.Second)
	pause := int(timing.ProbePause / time.Second)
	put := func(list ...Running) func(*Ledger) {
		return func(l *Ledger) {
			for _, r := range list {
				l.PutRunning(r)
			}
		}
	}
	end := func(seconds int, isCertain bool, uids ...string) func(*Ledger) {
		return func(l *Ledger) {
			for _, uid := range uids {
				l.FailStart(uid, after(seconds), isCertain)
				l.MarkEnded(uid, after(seconds))
			}
		}
	}
	unreported := admitted("b", "team-a")
	unreported.ReportsPodsReady = false
	// slow started once before the others were admitted, and took 4 minutes, or an hour.
	slow := func(namespace string, seconds int) func(*Ledger) {
		return put(startedAt(admittedAt(admitted("slow", namespace), -seconds-1), -1))
	}
	two := put(admitted("a", "team-a"), admitted("b", "team-a"))
	for _, tc := range []struct {
		name    string
		changes []func(*Ledger)
		seconds int
		// namespaces that doubt the cluster.
		want map[string]bool
	}{
		{"one hangs", []func(*Ledger){put(admitted("a", "team-a"))}, hangs, nil},
		{"two have not started yet", []func(*Ledger){two}, hangs - 1, nil},
		{"two of a namespace hang", []func(*Ledger){two}, hangs, map[string]bool{"team-a": true}},
		{"one of each of two namespaces hangs", []func(*Ledger){put(admitted("a", "team-a"), admitted("b", "team-b"))}, hangs, map[string]bool{"team-a": true, "team-b": true, "team-c": true}},
		{"Kueue does not say whether the second one starts", []func(*Ledger){put(admitted("a", "team-a"), unreported)}, hangs, nil},
		{"the second one starts", []func(*Ledger){two, put(startedAt(admitted("b", "team-a"), 10))}, hangs, nil},
		{"a later one of the namespace starts", []func(*Ledger){two, put(startedAt(admittedAt(admitted("c", "team-a"), 5), 10))}, hangs, nil},
		{"one of another namespace starts", []func(*Ledger){two, put(startedAt(admitted("c", "team-b"), 10))}, hangs, map[string]bool{"team-a": true}},
		{"one of a third namespace starts", []func(*Ledger){put(admitted("a", "team-a"), admitted("b", "team-b"), startedAt(admitted("c", "team-c"), 10))}, hangs, nil},
		{"they were sent after the last start", []func(*Ledger){put(startedAt(admittedAt(admitted("c", "team-a"), -20), -10)), two}, hangs, map[string]bool{"team-a": true}},
		{"both ended because they did not start", []func(*Ledger){two, end(60, true, "a", "b")}, 61, map[string]bool{"team-a": true}},
		{"both ended early for another reason", []func(*Ledger){two, end(60, false, "a", "b")}, 61, nil},
		{"both were given up", []func(*Ledger){two, end(hangs, false, "a", "b")}, hangs + 1, map[string]bool{"team-a": true}},
		{"both finished", []func(*Ledger){two, func(l *Ledger) { l.Release("a"); l.Release("b") }}, hangs, nil},
		{"one finished before it was seen to start", []func(*Ledger){put(admitted("a", "team-a"), admitted("b", "team-a"), admitted("c", "team-a")), func(l *Ledger) { l.Release("c") }}, hangs, nil},
		{"another slice took the pods of one over", []func(*Ledger){put(admitted("a", "team-a"), admitted("b", "team-a"), admitted("c", "team-a")), func(l *Ledger) { l.HandOver("c") }}, hangs, map[string]bool{"team-a": true}},
		{"the same workload failed twice", []func(*Ledger){put(admitted("a", "team-a")), end(10, true, "a"), put(admittedAt(admitted("a", "team-a"), 20)), end(30, true, "a")}, 31, nil},
		{"the next one is a probe", []func(*Ledger){two}, pause, nil},
		{"a probe is on its way", []func(*Ledger){two, func(l *Ledger) { l.Debit(entry("probe", "c1")) }}, pause, map[string]bool{"team-a": true}},
		{"a probe has not started yet", []func(*Ledger){two, put(admittedAt(admitted("probe", "team-b"), pause))}, pause + 1, map[string]bool{"team-a": true}},
		{"starts of the namespace take 4 minutes", []func(*Ledger){slow("team-a", 240), two}, hangs, nil},
		{"they hang for longer than starts of the namespace take", []func(*Ledger){slow("team-a", 240), two}, 480, map[string]bool{"team-a": true}},
		{"starts of another namespace take 4 minutes", []func(*Ledger){slow("team-b", 240), two}, hangs, map[string]bool{"team-a": true}},
		{"both were given up before starts of the namespace take", []func(*Ledger){slow("team-a", 240), two, end(hangs, false, "a", "b")}, hangs + 1, nil},
		{"starts of the namespace took 4 minutes, and a few seconds five times since", []func(*Ledger){slow("team-a", 240), func(l *Ledger) {
			for i := range learnedStarts {
				l.PutRunning(startedAt(admittedAt(admitted(fmt.Sprint("quick", i), "team-a"), -1), i))
			}
		}, put(admittedAt(admitted("a", "team-a"), 10), admittedAt(admitted("b", "team-a"), 10))}, 10 + hangs, map[string]bool{"team-a": true}},
		{"they ended long ago", []func(*Ledger){two, end(60, true, "a", "b")}, 60 + int(timing.StartAvoidance/time.Second), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(15*time.Second, 10*time.Minute)
			for _, change := range tc.changes {
				change(l)
			}
			now := after(tc.seconds)
			for _, namespace := range []string{"team-a", "team-b", "team-c"} {
				if got := l.View().Doubt("c1", namespace, now) != nil; got != tc.want[namespace] {
					t.Errorf("%s doubts: %t, want %t", namespace, got, tc.want[namespace])
				}
			}
			if l.View().Doubt("c2", "team-a", now) != nil {
				t.Error("another cluster is doubted")
			}
		})
	}
}

// A cluster is slow while a workload of the namespace, or those of two, take longer than starts did.
func TestIsSlow(t *testing.T) {
	slow := int(timing.SlowStart / time.Second)
	for _, tc := range []struct {
		name    string
		running []Running
		seconds int
		want    bool
	}{
		{"one of the namespace has not started", []Running{admitted("a", "team-a")}, slow, true},
		{"it has just been admitted", []Running{admitted("a", "team-a")}, slow - 1, false},
		{"one of another namespace has not started", []Running{admitted("a", "team-b")}, slow, false},
		{"those of two other namespaces have not started", []Running{admitted("a", "team-b"), admitted("b", "team-c")}, slow, true},
		{"starts of the namespace take 2 minutes", []Running{startedAt(admittedAt(admitted("s", "team-a"), -120), 0), admitted("a", "team-a")}, 239, false},
		{"it takes longer than twice that", []Running{startedAt(admittedAt(admitted("s", "team-a"), -120), 0), admitted("a", "team-a")}, 240, true},
		{"starts of the namespace take an hour", []Running{startedAt(admittedAt(admitted("s", "team-a"), -3600), 0), admitted("a", "team-a")}, int(timing.LongestStart / time.Second), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(15*time.Second, 10*time.Minute)
			for _, r := range tc.running {
				l.PutRunning(r)
			}
			if got := l.View().IsSlow("c1", "team-a", after(tc.seconds)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// The devices of a workload that was sent somewhere and has not started count once: in its entry until samples show them,
// and then as unstarted until its pods are ready or it ends.
func TestUnstarted(t *testing.T) {
	const devices = 8
	r := admitted("a", "team-a")
	r.PodSets = []shape.PodSet{podSet(devices, 1)}
	e := entry("a", "c1")
	e.AdmittedAt, e.ReportsPodsReady = t0, true
	for _, tc := range []struct {
		name    string
		change  func(*Ledger)
		sampled int // seconds after t0
		want    int64
	}{
		{"reserves devices", func(l *Ledger) { l.Debit(e) }, 30, 0},
		{"samples would show the devices", func(l *Ledger) { l.Debit(e) }, 240, devices},
		{"reserves none", nil, 30, devices},
		{"its pods are ready", func(l *Ledger) { l.PutRunning(startedAt(r, 40)) }, 90, 0},
		{"has ended", func(l *Ledger) { l.MarkEnded("a", after(40)) }, 90, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(30*time.Second, time.Hour)
			l.PutRunning(r)
			if tc.change != nil {
				tc.change(l)
			}
			if got := l.View().Unstarted("c1", after(tc.sampled), podSet(1, 1)); got != tc.want {
				t.Errorf("%d devices, want %d", got, tc.want)
			}
			if got := l.View().Unstarted("c2", after(tc.sampled), podSet(1, 1)); got != 0 {
				t.Errorf("%d devices on another cluster, want 0", got)
			}
		})
	}
}
