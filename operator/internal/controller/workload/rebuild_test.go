package workload

import (
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
)

// What a process finds on the hub when it starts is in its ledger.
func TestRebuiltLedger(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	ago := func(minutes int) time.Time { return noon.Add(-time.Duration(minutes) * time.Minute) }
	sent := func(at, reserved time.Time) *kueue.Workload {
		return dispatched(nominating(b.holder(reserved), "cluster1"), dispatch.Record{}.Begin([]string{"cluster1"}, "", at))
	}
	ready := func(at time.Time) *kueue.Workload { return decided(b.holder(ago(120)), at) }
	runs := func(at time.Time) *kueue.Workload {
		wl := ready(at)
		condition(wl, kueue.WorkloadAdmitted, at)
		return wl
	}
	reset := ready(ago(1))
	reset.Status.AdmissionChecks[0].State = kueue.CheckStatePending
	for name, tc := range map[string]struct {
		found *kueue.Workload
		want  int64
	}{
		"nominated":                                 {sent(ago(1), ago(2)), 2},
		"nominated before it got its quota":         {sent(ago(2), ago(1)), 0},
		"nominated too long ago":                    {sent(ago(61), ago(62)), 0},
		"decided, without MultiKueue":               {ready(ago(1)), 2},
		"decided too long ago":                      {ready(ago(61)), 0},
		"decided once, and the check was reset":     {reset, 0},
		"admitted":                                  {runs(ago(1)), 2},
		"admitted so long ago that samples show it": {runs(ago(61)), 0},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		r, s := b.operator(t, tc.found)
		r.rebuildFrom(t.Context(), s.wl)
		if got := b.Ledger.DevicesByCluster()["cluster1"]; got != tc.want {
			t.Errorf("%s: %d devices held on cluster1, want %d", name, got, tc.want)
		}
	}
}
