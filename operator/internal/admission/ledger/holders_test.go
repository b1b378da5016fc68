package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// ownedBy is an owner as Kueue and the exporter name it.
func ownedBy(kind, name string) Owner { return Owner{Namespace: "team-a", Kind: kind, Name: name} }

// The two pods of a gang hold eight devices each. What the exporter shows of them decides how much
// of the entry counts beside a sample, before and after Kueue reports anything.
func TestHoldersReplaceTheEntry(t *testing.T) {
	const settle = 15 * time.Second
	reported := func(pods int64) Holders { return Holders{"cluster1": {ownedBy("Job", "train"): pods}} }
	for _, tc := range []struct {
		name string
		// seen are the holders that were queried 20 s after the admission; nil = never.
		seen    Holders
		sampled int
		want    int64
	}{
		{"pods pull their image", reported(2), 21, 0},
		{"a sample from before the query", reported(2), 20, 16},
		{"half of the gang runs", reported(1), 21, 8},
		{"half of the gang runs for long", reported(1), 300, 8},
		{"more pods than requested", reported(4), 21, 0},
		{"a job of another kind and the same name", Holders{"cluster1": {ownedBy("RayJob", "train"): 2}}, 300, 16},
		{"a job of another namespace", Holders{"cluster1": {{Namespace: "team-b", Kind: "Job", Name: "train"}: 2}}, 300, 16},
		{"not scheduled for long", Holders{"cluster1": {}}, 300, 16},
		{"not scheduled, and the cluster does not report owners", Holders{"cluster2": {}}, 300, 0},
		{"never queried", nil, 61, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(settle, 10*time.Minute)
			e := entry("a", "cluster1")
			e.PodSets, e.Owners = []shape.PodSet{podSet(8, 2)}, []Owner{ownedBy("Job", "train")}
			l.Debit(e)
			l.MarkAdmitted("a", "cluster1", t0, true)
			if tc.seen != nil {
				l.MarkHeld(tc.seen, after(20))
			}
			if got := l.View().Devices("cluster1", after(tc.sampled), "other", podSet(8, 1)); got != tc.want {
				t.Errorf("%d devices reserved beside a sample of %d s later, want %d", got, tc.sampled, tc.want)
			}
		})
	}
}

// Pods of an earlier attempt may still hold devices when the next one is admitted.
func TestHoldersOfAnEarlierAttempt(t *testing.T) {
	l := New(15*time.Second, 10*time.Minute)
	e := entry("a", "cluster1")
	e.Owners = []Owner{ownedBy("Job", "train")}
	l.Debit(e)
	l.MarkAdmitted("a", "cluster1", t0, true)
	l.MarkHeld(Holders{"cluster1": {ownedBy("Job", "train"): 1}}, after(14))
	if got := l.View().Devices("cluster1", after(20), "other", podSet(8, 1)); got != 8 {
		t.Errorf("%d devices reserved, want 8", got)
	}
}

// Ready pods are proof enough, also if their owner has another name on the worker.
func TestReadyPodsNeedNoHolder(t *testing.T) {
	l := New(time.Minute, 10*time.Minute)
	e := entry("a", "cluster1")
	e.Owners = []Owner{ownedBy("Job", "train")}
	l.Debit(e)
	l.MarkAdmitted("a", "cluster1", t0, true)
	l.MarkHeld(Holders{"cluster1": {}}, after(70))
	l.MarkPodsReady("a", after(80))
	if got := l.View().Devices("cluster1", after(82), "other", podSet(8, 1)); got != 0 {
		t.Errorf("%d devices reserved, want 0", got)
	}
}

// The largest pods of a started part stay reserved: the gate does not know which ones run.
func TestHoldersOfSeveralPodSets(t *testing.T) {
	e := Entry{PodSets: []shape.PodSet{podSet(8, 2), podSet(1, 4)}, AdmittedAt: t0, HeldPods: 5, HeldAt: t0}
	rest, isMeasured := e.unmeasured(after(1), time.Minute)
	if isMeasured || len(rest) != 1 || rest[0].Devices() != 8 || rest[0].DevicesPerPod != 8 {
		t.Errorf("measured %t, rest %v, want one pod of eight devices", isMeasured, rest)
	}
	if e.Devices() != 20 {
		t.Errorf("the entry itself has %d devices, want 20", e.Devices())
	}
}

// Entries that wait for holders are queried for; others need no query.
func TestAwaitedHolders(t *testing.T) {
	l := New(time.Minute, 10*time.Minute)
	for _, uid := range []string{"nominated", "admitted", "ready", "held", "also admitted"} {
		e := entry(uid, "cluster1")
		e.Owners = []Owner{ownedBy("Job", uid)}
		l.Debit(e)
		if uid != "nominated" {
			l.MarkAdmitted(uid, "cluster1", t0, true)
		}
	}
	l.MarkPodsReady("ready", after(1))
	l.MarkHeld(Holders{"cluster1": {ownedBy("Job", "held"): 1}}, after(60))
	if diff := cmp.Diff([]Owner{ownedBy("Job", "admitted"), ownedBy("Job", "also admitted")}, l.AwaitedHolders()); diff != "" {
		t.Errorf("awaited (-want +got):\n%s", diff)
	}
}

// The order of the owners does not change the query for them.
func TestAwaitedHoldersAreSorted(t *testing.T) {
	want := []Owner{{"team-a", "Job", "a"}, {"team-a", "Job", "b"}, {"team-a", "RayJob", "a"}, {"team-b", "Job", "a"}}
	l := New(time.Minute, 10*time.Minute)
	for _, owner := range want {
		e := entry(owner.Namespace+owner.Kind+owner.Name, "cluster1")
		e.Owners = []Owner{owner}
		l.Debit(e)
		l.MarkAdmitted(e.UID, "cluster1", t0, true)
	}
	for range 10 {
		if diff := cmp.Diff(want, l.AwaitedHolders()); diff != "" {
			t.Fatalf("awaited (-want +got):\n%s", diff)
		}
	}
}

// A pod may wait for a free node long after the admission. A sample from before it started shows its
// devices as free, however old the admission is.
func TestPodsThatStartAfterTheSampleStayReserved(t *testing.T) {
	for sampled, want := range map[int]int64{90: 8, 101: 0} {
		l := New(15*time.Second, 10*time.Minute)
		e := entry("a", "cluster1")
		e.Owners = []Owner{ownedBy("Job", "train")}
		l.Debit(e)
		l.MarkAdmitted("a", "cluster1", t0, true)
		l.MarkHeld(Holders{"cluster1": {}}, after(70))
		l.MarkHeld(Holders{"cluster1": {ownedBy("Job", "train"): 1}}, after(100))
		if got := l.View().Devices("cluster1", after(sampled), "other", podSet(8, 1)); got != want {
			t.Errorf("%d devices reserved beside a sample of %d s, want %d", got, sampled, want)
		}
		if dropped := l.Expire(map[string]SampleTimes{"cluster1": {Devices: after(sampled)}}, after(102)); (dropped == 1) != (want == 0) {
			t.Errorf("%d entries dropped with a sample of %d s", dropped, sampled)
		}
	}
}

// Holders say nothing about workloads that no cluster has admitted, and about those with unknown owners.
func TestHoldersOfOtherWorkloads(t *testing.T) {
	holders := Holders{"cluster1": {ownedBy("Job", "train"): 1}}
	l := New(15*time.Second, 10*time.Minute)
	e := entry("a", "cluster1")
	e.Owners = []Owner{ownedBy("Job", "train")}
	l.Debit(e)
	l.MarkHeld(holders, after(20))
	l.MarkAdmitted("a", "cluster1", after(30), true)
	if got := l.View().Devices("cluster1", after(31), "other", podSet(8, 1)); got != 8 {
		t.Errorf("%d devices reserved although the holders are from before the admission, want 8", got)
	}

	l = New(15*time.Second, 10*time.Minute)
	l.Debit(entry("a", "cluster1"))
	l.MarkAdmitted("a", "cluster1", t0, false)
	l.MarkHeld(holders, after(20))
	if got := l.View().Devices("cluster1", after(21), "other", podSet(8, 1)); got != 0 {
		t.Errorf("%d devices reserved although the owners of the pods are unknown, want 0", got)
	}
}

// New holders change what others find free. The same holders again do not make a decision start over.
func TestHoldersWithoutNewsChangeNothing(t *testing.T) {
	l := New(15*time.Second, 10*time.Minute)
	e := entry("a", "cluster1")
	e.PodSets, e.Owners = []shape.PodSet{podSet(8, 2)}, []Owner{ownedBy("Job", "train")}
	l.Debit(e)
	l.MarkAdmitted("a", "cluster1", t0, true)
	for i, tc := range []struct {
		pods     int64
		isNews   bool
		reserved int64
	}{{0, true, 16}, {0, false, 16}, {1, true, 8}, {1, false, 8}, {0, false, 8}, {2, true, 0}} {
		before := l.View()
		l.MarkHeld(Holders{"cluster1": {ownedBy("Job", "train"): tc.pods}}, after(20+i))
		if got := l.View().Devices("cluster1", after(21+i), "other", podSet(8, 1)); got != tc.reserved {
			t.Errorf("step %d: %d devices reserved, want %d", i, got, tc.reserved)
		}
		if isNews := !l.Commit(before, "b", nil, nil, nil); isNews != tc.isNews {
			t.Errorf("step %d: the ledger changed: %t, want %t", i, isNews, tc.isNews)
		}
	}
}
