package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func condition(wl *kueue.Workload, kind string, at time.Time) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
}

// decided for cluster1, without MultiKueue.
func decided(wl *kueue.Workload, at time.Time) *kueue.Workload {
	wl.Status.AdmissionChecks[0] = kueue.AdmissionCheckState{Name: "plimsoll", State: kueue.CheckStateReady,
		Message: "cluster1 can take it: room for 1 such pod there", LastTransitionTime: metav1.NewTime(at)}
	return wl
}

// Devices stay promised until samples must show them: from when the workload was
// admitted and, where Kueue tells that its pods run, hardly longer.
func TestPromisedUntilTheSamplesShowIt(t *testing.T) {
	const settle = time.Minute
	ago, soon := noon.Add(-time.Hour), noon.Add(time.Second)
	for name, tc := range map[string]struct {
		admitted, podsReady time.Time // zero = not
		at                  time.Duration
		want                int64
	}{
		"decided":                             {time.Time{}, time.Time{}, 2 * settle, 2},
		"admitted":                            {noon, time.Time{}, settle / 2, 2},
		"admitted a while ago":                {noon, time.Time{}, 2 * settle, 0},
		"its pods run":                        {noon, soon, settle / 2, 0},
		"the pods of its last run were ready": {noon, ago, settle / 2, 2},
		"its pods are awaited":                {noon, ago, 3 * settle, 2},
		"its pods are awaited for long":       {noon, ago, 5 * settle, 0},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		b.Ledger.Settle = settle
		wl := decided(b.holder(noon), noon)
		if !tc.admitted.IsZero() {
			condition(wl, kueue.WorkloadAdmitted, tc.admitted)
		}
		if !tc.podsReady.IsZero() {
			condition(wl, kueue.WorkloadPodsReady, tc.podsReady)
		}
		r, s := b.operator(t, wl)
		b.Ledger.Debit(Entry(b.facts, "cluster1", noon))
		r.track(t.Context(), s)
		if got := b.Ledger.View().Devices("cluster1", noon.Add(tc.at), "other", b.facts.PodSets[0]); got != tc.want {
			t.Errorf("%s: %d devices promised beside a sample of %s later, want %d", name, got, tc.at, tc.want)
		}
	}
}

// What a workload held others may have: its devices count as free in ranking, and who
// waits is woken. Of one that was cut short they may be in use still, until samples show it.
func TestWhatEndsIsGivenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*kueue.Workload)
		held int64
	}{
		"it is finished":    {func(wl *kueue.Workload) { condition(wl, kueue.WorkloadFinished, noon) }, 0},
		"its quota is gone": {func(wl *kueue.Workload) { wl.Status.Admission = nil }, 2},
		"its quota went and came between two looks": {func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(time.Minute))
		}, 2},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{PeriodSeconds: 3600})
		b.Ledger.Settle = time.Minute
		wl := decided(b.holder(noon), noon)
		condition(wl, kueue.WorkloadAdmitted, noon)
		r, s := b.operator(t, wl)
		r.track(t.Context(), s)
		if got := b.Ledger.DevicesByCluster()["cluster1"]; got != 2 {
			t.Fatalf("%d devices held on cluster1, want 2", got)
		}
		rounds := 0
		b.add(time.Minute)
		r.waiting.Add(querycache.Key{Gate: "gpu"}, types.NamespacedName{Name: "waits"}, noon)
		r.waiting.Refresh = func(querycache.Key, time.Time) { rounds++ }
		tc.end(s.wl)
		r.track(t.Context(), s)
		view, set := b.Ledger.View(), b.facts.PodSets[0]
		if got := view.Credited("cluster1", noon, set); got != 2 {
			t.Errorf("%s: %d devices came free, want 2", name, got)
		}
		for after, want := range map[time.Duration]int64{0: tc.held, b.Ledger.Settle + time.Second: 0} {
			if got := view.Devices("cluster1", b.clock.now().Add(after), "other", set); got != want {
				t.Errorf("%s: %d devices held beside a sample of %s later, want %d", name, got, after, want)
			}
		}
		for _, after := range []time.Duration{timing.MinRoundGap, timing.SettlingRoundGap} {
			b.add(after)
			r.waiting.StartRounds()
		}
		if rounds != 2 {
			t.Errorf("%s: %d rounds, want one at once and another while samples come to show it", name, rounds)
		}
	}
}

// Of a workload that is gone nothing is kept, whether or not it held quota, and what
// another of its name held others may have.
func TestNothingIsKeptOfWhatIsGone(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	wl := b.holder(noon)
	wl.Status.Admission = nil
	r, s := b.operator(t, wl)
	for _, uid := range []types.UID{"queued", "held", "held by another since"} {
		s.wl.UID = uid
		r.track(t.Context(), s)
		r.tracks.behind(s.wl, noon)
		r.wrote(s.wl, s.wl)
		if uid == "held" {
			e := Entry(b.facts, "cluster1", noon)
			e.UID = string(uid)
			b.Ledger.Debit(e)
		}
	}
	if held := b.Ledger.View().Entries("cluster1", b.clock.now().Add(time.Hour)); len(held) != 0 {
		t.Errorf("the former of the same name holds %v for ever", held)
	}
	r.gone(s.key())
	if len(r.tracks.of) != 0 || len(r.tracks.uids) != 0 {
		t.Errorf("kept of what is gone: %v, %v", r.tracks.of, r.tracks.uids)
	}
	if r.tracks.behind(s.wl, noon); len(r.tracks.of) != 0 {
		t.Error("a mere look is kept")
	}
}

// A Ready workload that waits for another check is explained with its own cluster first.
func TestWhatWasChosenStaysTheChoice(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	r, s := b.operator(t, decided(b.holder(noon), noon))
	if got := r.sentTo(s); len(got) != 1 || got[0] != "cluster1" {
		t.Errorf("kept are %v, want cluster1", got)
	}
}
