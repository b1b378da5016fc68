package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// checks of a workload as a user reads them.
func checks(wl *kueue.Workload) map[string]string {
	said := map[string]string{}
	for _, c := range wl.Status.AdmissionChecks {
		said[string(c.Name)] = string(c.State) + " " + c.Message
	}
	return said
}

// A workload that no gate can decide waits like any other: it is counted, and says why
// on the checks that wait, and once in an event.
func TestWhatNoGateDecides(t *testing.T) {
	const absent = "PlacementGate gpu does not exist"
	const twice = "more than one placement check stands on this queue, leave one: plimsoll, second"
	second := func(state kueue.CheckState) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "second", State: state, Message: "as it was"})
		}
	}
	for name, tc := range map[string]struct {
		change func(*kueue.Workload)
		gone   bool
		want   map[string]string
		event  string
	}{
		"the gate is gone":  {func(*kueue.Workload) {}, true, map[string]string{"plimsoll": "Pending " + absent}, absent},
		"two checks":        {second(kueue.CheckStatePending), false, map[string]string{"plimsoll": "Pending " + twice, "second": "Pending " + twice}, twice},
		"one of them Ready": {second(kueue.CheckStateReady), false, map[string]string{"plimsoll": "Pending " + twice, "second": "Ready as it was"}, twice},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		wl := b.holder(noon)
		tc.change(wl)
		r, s := b.operator(t, wl)
		if len(wl.Status.AdmissionChecks) > 1 {
			s.own = []string{"plimsoll", "second"}
		}
		if tc.gone {
			r.board.Delete("gpu")
		}
		recorder := events.NewFakeRecorder(9)
		r.recorder = recorder
		for range 2 {
			if _, err := r.gated(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(tc.want, checks(live(t, r, s))); diff != "" {
			t.Errorf("%s: checks (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(map[string]registry.WaitSummary{"gpu": {Workloads: 1, Since: noon}}, r.board.WaitSummaries()); diff != "" {
			t.Errorf("%s: queues (-want +got):\n%s", name, diff)
		}
		if len(recorder.Events) != 1 {
			t.Fatalf("%s: %d events", name, len(recorder.Events))
		}
		if got := <-recorder.Events; got != "Warning GateNotReady "+tc.event {
			t.Errorf("%s: event %q", name, got)
		}
	}
}

// Where all of several checks are Ready nothing waits for us.
func TestTwoReadyChecksWaitForNothing(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	wl := decided(b.holder(noon), noon)
	wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "second", State: kueue.CheckStateReady})
	r, s := b.operator(t, wl)
	s.own = []string{"plimsoll", "second"}
	before := checks(s.wl)
	r.waiting.Add(querycache.Key{Gate: "gpu"}, s.key(), noon)
	if _, err := r.gated(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, checks(live(t, r, s))); diff != "" || r.board.Waiting("gpu") != 0 {
		t.Errorf("%d wait, checks (-before +after):\n%s", r.board.Waiting("gpu"), diff)
	}
}
