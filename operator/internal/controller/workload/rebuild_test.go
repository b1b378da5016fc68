package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// What a process finds on the hub when it starts, in the ledger of two devices a job.
func TestRebuiltLedger(t *testing.T) {
	const minute, held = time.Minute, 2
	sent := func(ago, reserved time.Duration) func(*bench) *kueue.Workload {
		return func(b *bench) *kueue.Workload {
			wl := nominating(b.holder(b.clock.now().Add(-reserved)), "cluster1")
			return dispatched(wl, gate.Dispatch{}.Begin([]string{"cluster1"}, "", b.clock.now().Add(-ago)))
		}
	}
	ready := func(ago time.Duration, state kueue.CheckState) func(*bench) *kueue.Workload {
		return func(b *bench) *kueue.Workload {
			wl := b.holder(b.clock.now().Add(-2 * time.Hour))
			wl.Status.AdmissionChecks[0] = kueue.AdmissionCheckState{Name: "plimsoll", State: state, Message: "cluster2 can take it: room for 1 such pod there",
				LastTransitionTime: metav1.NewTime(b.clock.now().Add(-ago))}
			return wl
		}
	}
	runs := func(ago time.Duration) func(*bench) *kueue.Workload {
		return func(b *bench) *kueue.Workload {
			wl := ready(ago, kueue.CheckStateReady)(b)
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(b.clock.now().Add(-ago))})
			return wl
		}
	}
	for name, tc := range map[string]struct {
		found func(*bench) *kueue.Workload
		want  map[string]int64
	}{
		"nominated":                                 {sent(minute, 2*minute), map[string]int64{"cluster1": held}},
		"nominated before it got its quota":         {sent(2*minute, minute), map[string]int64{}},
		"nominated too long ago":                    {sent(61*minute, 62*minute), map[string]int64{}},
		"decided, without MultiKueue":               {ready(minute, kueue.CheckStateReady), map[string]int64{"cluster2": held}},
		"decided too long ago":                      {ready(61*minute, kueue.CheckStateReady), map[string]int64{}},
		"decided once, and the check was reset":     {ready(minute, kueue.CheckStatePending), map[string]int64{}},
		"admitted":                                  {runs(minute), map[string]int64{"cluster2": held}},
		"admitted so long ago that samples show it": {runs(61 * minute), map[string]int64{}},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		r, s := b.operator(t, tc.found(b))
		r.rebuildFrom(t.Context(), s.wl)
		if diff := cmp.Diff(tc.want, b.ledger.Size()); diff != "" {
			t.Errorf("%s: devices held (-want +got):\n%s", name, diff)
		}
	}
}
