package workload

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// roomy bench: two clusters of one size with much room, sampled just now.
func roomy() *bench {
	b := newBench(v1alpha1.PlacementGateSpec{})
	b.source.answers["floor("] = series("cluster1", 9.0, "cluster2", 9.0)
	b.source.answers["sample_timestamp"] = series("cluster1", b.at(-5), "cluster2", b.at(-5))
	return b
}

// A nomination that nobody takes up holds devices for the time to live, not for ever.
func TestDebitsOfANomination(t *testing.T) {
	for name, tc := range map[string]struct {
		sent, reserved time.Duration // ago
		want           map[string]int64
	}{
		"of a minute ago":     {time.Minute, time.Minute, map[string]int64{"cluster1": 2, "cluster2": 2}},
		"that had its time":   {61 * time.Minute, 61 * time.Minute, map[string]int64{"cluster2": 2}},
		"of an older attempt": {61 * time.Minute, 60 * time.Minute, map[string]int64{"cluster1": 2, "cluster2": 2}},
	} {
		b := roomy()
		now := b.clock.now()
		wl := nominating(b.holder(now.Add(-tc.reserved)), "cluster1")
		r, s := b.operator(t, dispatched(wl, dispatch.Record{}.Begin([]string{"cluster1"}, "", now.Add(-tc.sent))))
		s.usable = []string{"cluster1", "cluster2"}
		r.reserve(t.Context(), s, b.gate, b.facts, 1, func(gate.Decision) []string { return []string{"cluster1", "cluster2", "full"} })
		if diff := cmp.Diff(tc.want, b.Ledger.DevicesByCluster()); diff != "" {
			t.Errorf("widening a nomination %s: devices held (-want +got):\n%s", name, diff)
		}
	}
}

// Another cluster than the one that it was, or was about to be, sent to would be one
// copy more; an attempt that an eviction ended binds nobody.
func TestWhereAWorkloadWasSent(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*kueue.Workload)
		want   []string
	}{
		"nominated to another than the annotation says": {func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"cluster2"} }, []string{"cluster2"}},
		"we stopped after the annotation":               {func(*kueue.Workload) {}, []string{"cluster1"}},
		"it got its quota after the annotation": {func(wl *kueue.Workload) {
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(time.Second))
		}, nil},
		"it is being evicted": {func(wl *kueue.Workload) {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue})
		}, nil},
	} {
		wl := newBench(v1alpha1.PlacementGateSpec{}).holder(noon)
		tc.change(dispatched(wl, dispatch.Record{}.Begin([]string{"cluster1"}, "", noon)))
		if diff := cmp.Diff(tc.want, (&Reconciler{tracks: newTracks()}).sentTo(&subject{wl: wl})); diff != "" {
			t.Errorf("%s: sent to (-want +got):\n%s", name, diff)
		}
	}
}

// An evicted workload need not go again where it was. Explain tells of the decision
// that follows, not of another.
func TestExplainTellsTheDecisionThatFollows(t *testing.T) {
	for _, nominated := range [][]string{nil, {"cluster2"}} {
		first := map[string]bool{}
		for evictions := range int32(20) {
			b := roomy()
			wl := nominating(b.holder(b.clock.now()), nominated...)
			wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: evictions}}}
			r, s := b.operator(t, wl)
			s.usable = []string{"cluster1", "cluster2"}
			e := &gate.Explanation{}
			r.explainDecision(t.Context(), s, b.gate, e)
			r.reserve(t.Context(), s, b.gate, e.Facts, 1, func(d gate.Decision) []string {
				if diff := cmp.Diff(d.Order, e.Decision.Order); diff != "" {
					t.Errorf("nominated to %v after %d evictions (-decided +explained):\n%s", nominated, evictions, diff)
				}
				first[d.Order[0]] = true
				return nil
			})
		}
		if want := max(1, 2-len(nominated)); len(first) != want || !first["cluster2"] {
			t.Errorf("nominated to %v it would go to %v", nominated, first)
		}
	}
}

// What somebody else nominated stays, and is not taken for what is left of an attempt.
func TestWhatOthersNominatedIsNotCalledLeft(t *testing.T) {
	b := roomy()
	b.source.answers["floor("] = series("cluster1", 9.0)
	wl := nominating(b.holder(b.clock.now()), "cluster1", "cluster2")
	wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending
	r, s := b.operator(t, wl)
	s.usable = []string{"cluster1", "cluster2"}
	if _, err := r.decide(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	d, err := dispatch.Decode(live(t, r, s).Annotations)
	if diff := cmp.Diff([]string{"cluster1", "cluster2"}, d.Nominated); diff != "" || err != nil || strings.Contains(d.Reason, "left") {
		t.Errorf("nominated (-want +got):\n%s%v, for %q", diff, err, d.Reason)
	}
}

// A copy that Kueue could not yet remove runs on: nominated again it is adopted, and
// no second one runs beside it.
func TestACopyThatMayBeLeftIsNominatedAgain(t *testing.T) {
	both := []any{"cluster1", 9.0, "cluster2", 9.0}
	for name, tc := range map[string]struct {
		without  time.Duration // quota
		room     []any
		recorded bool // by Kueue, that cluster1 admitted it
		clusters []string
		want     []string
	}{
		"its devices are taken, by the copy maybe": {3 * time.Second, both[2:], false, nil, []string{"cluster2", "cluster1"}},
		"it has room: no copy more":                {3 * time.Second, both, false, nil, []string{"cluster1"}},
		"it is no candidate any longer":            {3 * time.Second, both[2:], false, []string{"cluster2"}, []string{"cluster2"}},
		"Kueue had the time to remove it":          {time.Minute, both[2:], false, nil, []string{"cluster2"}},
		"Kueue knew of it, and removed it":         {16 * time.Second, both[2:], true, nil, []string{"cluster2"}},
	} {
		b := roomy()
		b.source.answers["floor("] = series(tc.room...)
		if tc.clusters != nil {
			b.gate.Clusters = slices.DeleteFunc(b.gate.Clusters, func(c registry.Cluster) bool { return !slices.Contains(tc.clusters, c.Name) })
		}
		now := b.clock.now()
		r, s := b.operator(t, nominating(b.holder(now)))
		s.usable = []string{"cluster1", "cluster2"}
		r.tracks.see(s.wl.UID, []string{"cluster1"})
		if tc.recorded {
			r.tracks.run(s.wl.UID, ledger.Entry{Cluster: "cluster1"})
		}
		for range 2 { // looks without quota
			r.tracks.stop(s.wl.UID, false, now.Add(-tc.without))
		}
		if _, err := r.decide(t.Context(), s); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wl := live(t, r, s)
		if d, err := dispatch.Decode(wl.Annotations); err != nil || strings.Contains(d.Reason, "may be left on cluster1") != (len(tc.want) > 1) {
			t.Errorf("%s: the reason is %q, %v", name, d.Reason, err)
		}
		if diff := cmp.Diff(tc.want, wl.Status.NominatedClusterNames); diff != "" {
			t.Errorf("%s: nominated (-want +got):\n%s", name, diff)
		}
	}
}

// A copy that Kueue could not remove, for its cluster was away, is waited for: were
// another admitted meanwhile, Kueue would take it away once the older is back.
func TestACopyOutOfReachIsWaitedFor(t *testing.T) {
	const (
		away, gone  = -1, -2
		unreachable = "which Kueue cannot reach"
	)
	both := []any{"cluster1", 9.0, "cluster2", 9.0}
	for name, tc := range map[string]struct {
		without   time.Duration // quota
		connected time.Duration // ago, of cluster1
		ran       string        // there: how it ended
		room      []any
		want      []string
		wait      time.Duration
		why       string
	}{
		"it is away":                               {19 * time.Second, away, "", both, nil, 11 * time.Second, unreachable},
		"it is away for longer than nominations":   {31 * time.Second, away, "", both, []string{"cluster2"}, 0, ""},
		"it left the configuration":                {19 * time.Second, gone, "", both, []string{"cluster2"}, 0, ""},
		"it is back: the copy stays":               {19 * time.Second, time.Second, "", both, []string{"cluster1"}, 0, ""},
		"it is back: its devices are taken":        {19 * time.Second, time.Second, "", both[2:], []string{"cluster2", "cluster1"}, 0, ""},
		"it is back for long: the copy is removed": {19 * time.Second, 11 * time.Second, "", both[2:], []string{"cluster2"}, 0, ""},
		"it ran there, and may be away":            {3 * time.Second, time.Hour, "Preempted", both[2:], nil, 12 * time.Second, "from where Kueue may not have removed it yet"},
		"it ran there, and goes there again":       {3 * time.Second, time.Hour, "Preempted", both[:2], []string{"cluster1"}, 0, ""},
		"it ran there, and is away":                {16 * time.Second, away, "Preempted", both, nil, 14 * time.Second, unreachable},
		"it ran there, and is back":                {16 * time.Second, time.Second, "Preempted", both[2:], []string{"cluster2", "cluster1"}, 0, ""},
		"it ran there, and Kueue removed it":       {16 * time.Second, time.Hour, "Preempted", both[2:], []string{"cluster2"}, 0, ""},
		"it ran there until the worker ended it":   {3 * time.Second, time.Hour, "AdmissionCheck", both[2:], []string{"cluster2"}, 0, ""},
	} {
		b := roomy()
		b.source.answers["floor("] = series(tc.room...)
		now := b.clock.now()
		asked := nominating(b.holder(now))
		asked.Status.AdmissionChecks[0].State = kueue.CheckStatePending
		r, s := b.operator(t, asked)
		s.usable = []string{"cluster2"}
		switch tc.connected {
		case gone:
		case away:
			s.unusable["cluster1"] = "is not connected by Kueue"
		default:
			s.usable, s.since["cluster1"] = append(s.usable, "cluster1"), now.Add(-tc.connected)
		}
		r.tracks.see(s.wl.UID, []string{"cluster1"})
		if tc.ran != "" {
			r.tracks.run(s.wl.UID, ledger.Entry{Cluster: "cluster1"})
		}
		b.clock.time = now.Add(-tc.without)
		evicted := s.wl.DeepCopy()
		evicted.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: tc.ran}}
		r.over(s.wl.UID, s.key(), evicted)
		b.clock.time = now
		result, err := r.decide(t.Context(), s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wl := live(t, r, s)
		if diff := cmp.Diff(tc.want, wl.Status.NominatedClusterNames); diff != "" {
			t.Errorf("%s: nominated (-want +got):\n%s", name, diff)
		}
		if tc.wait == 0 {
			continue
		}
		want := "waits until " + now.Add(tc.wait).Format(time.TimeOnly) + " UTC for its last attempt on cluster1, " + tc.why
		if check := wl.Status.AdmissionChecks[0]; check.State != kueue.CheckStatePending || check.Message != want || result.RequeueAfter != tc.wait {
			t.Errorf("%s: %s %q, again in %s", name, check.State, check.Message, result.RequeueAfter)
		}
	}
}

// Where there is nowhere left to go the workload waits on, and whoever asks for its
// events learns why: once for each attempt.
func TestNowhereLeftToWidenIsSaid(t *testing.T) {
	const said = "Warning NotAdmitted cluster1 has not admitted it 30s after its nomination (is the queue there, and has it quota?), and no other cluster is known to have room"
	b := roomy()
	b.source.answers["floor("] = series("cluster1", 9.0)
	sent := dispatch.Record{}.Begin([]string{"cluster1"}, "", b.clock.now())
	r, s := b.operator(t, dispatched(nominating(b.holder(b.clock.now()), "cluster1"), sent))
	s.usable = []string{"cluster1"}
	recorder := events.NewFakeRecorder(9)
	r.recorder = recorder
	look := func(after time.Duration, want ...string) {
		t.Helper()
		b.add(after)
		b.source.answers["sample_timestamp"] = series("cluster1", b.at(-5), "cluster2", b.at(-5))
		b.round()
		if _, err := r.widenIfDue(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var got []string
		for len(recorder.Events) > 0 {
			got = append(got, <-recorder.Events)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
	look(29 * time.Second)
	look(time.Second, said)
	look(time.Minute)
	dispatched(s.wl, sent.Begin([]string{"cluster1"}, "", b.clock.now()))
	look(30*time.Second, said)
}

// What widens says so itself.
func TestWideningIsSaidOnce(t *testing.T) {
	b := roomy()
	sent := dispatch.Record{}.Begin([]string{"cluster1"}, "", b.clock.now().Add(-30*time.Second))
	r, s := b.operator(t, dispatched(nominating(b.holder(b.clock.now().Add(-time.Minute)), "cluster1"), sent))
	s.usable = []string{"cluster1", "cluster2"}
	recorder := events.NewFakeRecorder(9)
	r.recorder = recorder
	if _, err := r.widenIfDue(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := <-recorder.Events; len(recorder.Events) > 0 || !strings.HasPrefix(got, "Normal Widened [cluster1 cluster2]: ") {
		t.Errorf("said: %q and %d more", got, len(recorder.Events))
	}
}
