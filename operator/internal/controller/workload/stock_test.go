package workload

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// waitingFor MultiKueue's check besides the gate's.
func waitingFor(wl *kueue.Workload) *kueue.Workload {
	wl = nominating(wl)
	wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending
	return wl
}

// Kueue chooses the cluster, but there are no more devices for that: a burst does not
// all get Ready on one sample.
func TestStockDispatchDebitsWhatGetsReady(t *testing.T) {
	b := roomy()
	b.source.answers["floor("] = series("cluster1", 2.0, "cluster2", 1.0)
	states := map[kueue.CheckState]int{}
	for i := range 5 {
		wl := waitingFor(b.holder(b.clock.now()))
		wl.Name, wl.UID = fmt.Sprint("job-", i), types.UID(fmt.Sprint(i))
		r, s := b.operator(t, wl)
		r.nominate, s.usable = false, []string{"cluster1", "cluster2"}
		if _, err := r.decide(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		states[live(t, r, s).Status.AdmissionChecks[0].State]++
	}
	if diff := cmp.Diff(map[kueue.CheckState]int{kueue.CheckStateReady: 3, kueue.CheckStatePending: 2}, states); diff != "" {
		t.Errorf("five jobs, room for three (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"cluster1": 4, "cluster2": 2}, b.ledger.Size()); diff != "" {
		t.Errorf("devices held (-want +got):\n%s", diff)
	}
}

// Whatever Kueue nominates meanwhile: the workload takes devices once, and in the end
// from the cluster that admits it.
func TestStockDispatchDebitsOneCluster(t *testing.T) {
	b := roomy()
	wl := waitingFor(b.holder(b.clock.now()))
	wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"}
	r, s := b.operator(t, wl)
	r.nominate, s.usable = false, []string{"cluster1", "cluster2"}
	if _, err := r.decide(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	held := b.ledger.Size()
	if held["cluster1"]+held["cluster2"] != 2 {
		t.Fatalf("held of two devices: %v", held)
	}
	admits := "cluster1"
	if held[admits] > 0 {
		admits = "cluster2"
	}
	s.wl.Status.ClusterName = &admits
	r.track(t.Context(), s)
	if diff := cmp.Diff(map[string]int64{admits: 2}, b.ledger.Size()); diff != "" {
		t.Errorf("admitted by another than was guessed, devices held (-want +got):\n%s", diff)
	}
}

// What Kueue pins goes where the rest of its job is, which nobody tells.
func TestStockDispatchDebitsNothingThatIsPinned(t *testing.T) {
	b := roomy()
	wl := waitingFor(b.holder(b.clock.now()))
	wl.Annotations = map[string]string{"kueue.x-k8s.io/component-workload-index": "1"}
	r, s := b.operator(t, wl)
	r.nominate, s.usable = false, []string{"cluster1", "cluster2"}
	if _, err := r.decide(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if held := b.ledger.Size(); len(held) != 0 {
		t.Errorf("held: %v", held)
	}
}

// Who nominates decides again when its turn comes; with Kueue's dispatcher the Ready
// check's message tells a new process what is promised.
func TestWhatGotReadyIsDebitedAfterARestart(t *testing.T) {
	for nominate, want := range map[bool]map[string]int64{true: {}, false: {"cluster1": 2}} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		wl := nominating(decided(b.holder(noon), noon))
		r, s := b.operator(t, wl)
		r.nominate = nominate
		r.rebuildFrom(t.Context(), s.wl)
		if diff := cmp.Diff(want, b.ledger.Size()); diff != "" {
			t.Errorf("nominate %t: devices held (-want +got):\n%s", nominate, diff)
		}
	}
}
