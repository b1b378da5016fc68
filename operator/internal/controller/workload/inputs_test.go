package workload

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// A moved workload is sent to another cluster although the one that it left is the only other choice with
// more room, and waits if none has room. After timing.MoveAvoidance it may return.
func TestMovedWorkloadAvoidsTheClusterItLeft(t *testing.T) {
	for _, tc := range []struct {
		name  string
		room  map[string]float64
		after time.Duration
		want  []string
	}{
		{"room elsewhere", map[string]float64{"cluster1": 90, "cluster2": 1}, 0, []string{"cluster2"}},
		{"room only there", map[string]float64{"cluster1": 90, "cluster2": 0}, 0, nil},
		{"room only there, later", map[string]float64{"cluster1": 90, "cluster2": 0}, 10 * time.Minute, []string{"cluster1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.clock.add(tc.after)
			b.room(tc.room)
			wl := fixture.WithMultiKueue(fixture.PendingWorkload(b.now().Add(-time.Minute)))
			moved("cluster1")(wl)
			b.create(wl)
			b.reconcile()
			if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, tc.want) {
				t.Errorf("nominated %v, want %v; check %q", got, tc.want, b.check().Message)
			}
			if message := b.check().Message; tc.want == nil && !strings.Contains(message, "cluster1 was left for team-a/big") {
				t.Errorf("check %q", message)
			}
			if tc.want == nil || tc.after > 0 {
				return
			}
			// No stage of widening nominates the cluster, also not for a copy of an earlier attempt.
			for range 8 {
				b.clock.add(time.Minute)
				b.room(tc.room)
				b.reconcile()
			}
			if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, tc.want) {
				t.Errorf("widened to %v", got)
			}
		})
	}
}

// Without MultiKueue, the check's last word clears the record of the wait. What a ReclaimPolicy recorded
// stays: other policies read from it that the workload was returned within the hour.
func TestPlacedWorkloadKeepsTheRecordOfItsMove(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{"cluster1": 90, "cluster2": 1})
	wl := fixture.PendingWorkload(b.now().Add(-time.Minute))
	moved("cluster1")(wl)
	b.create(wl)
	b.reconcile()
	record := b.dispatchRecord()
	if b.check().State != kueue.CheckStateReady || record.Reclaimed == nil || len(record.Avoided(b.now())) != 1 {
		t.Errorf("check %+v, record %+v", b.check(), record)
	}
}

// The inputs of a decision are those of the next reconciliation, also for a workload that runs.
func TestInputs(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.lead()
	b.room(map[string]float64{"cluster1": 0, "cluster2": 3})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(-time.Hour)))
	fixture.AdmitBy(wl, "cluster1")
	b.create(wl)
	in, problem, err := b.Inputs(t.Context(), b.key)
	if err != nil || problem != "" {
		t.Fatal(problem, err)
	}
	d := in.Decide(b.now())
	if !slices.Equal(d.Order, []string{"cluster2"}) || d.Verdicts[0].Rejection != gate.RejectNoRoom || in.Source != "thanos" || in.OwnFit || in.Facts.UID != string(wl.UID) {
		t.Errorf("decision %+v, inputs %+v", d, in)
	}
	if in.AwaitsCheck != "" {
		t.Errorf("awaits %s", in.AwaitsCheck)
	}
	other := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(-time.Hour)))
	other.Name, other.UID = "provisions", "provisions"
	other.Status.AdmissionChecks = append(other.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "provisioning", State: kueue.CheckStatePending})
	b.create(other)
	if in, problem, err := b.Inputs(t.Context(), types.NamespacedName{Namespace: "team-a", Name: "provisions"}); err != nil || problem != "" || in.AwaitsCheck != "provisioning" {
		t.Errorf("got %+v, %q, %v", in, problem, err)
	}
	for name, change := range map[string]func(){
		"it does not exist": func() { b.key = types.NamespacedName{Namespace: "team-a", Name: "other"} },
		"it holds no quota": func() {
			other := fixture.PendingWorkload(fixture.Noon)
			other.Name, other.UID, other.Status = "idle", "idle", kueue.WorkloadStatus{}
			b.create(other)
		},
		"it does not have one check of a gate": func() {
			other := fixture.PendingWorkload(fixture.Noon)
			other.Name, other.UID, other.Status.AdmissionChecks = "ungated", "ungated", nil
			b.create(other)
		},
	} {
		change()
		if in, problem, err := b.Inputs(t.Context(), b.key); in != nil || problem != name || err != nil {
			t.Errorf("got %v, %q, %v, want %q", in, problem, err, name)
		}
	}
}
