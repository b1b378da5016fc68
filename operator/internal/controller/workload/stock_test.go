package workload

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	if diff := cmp.Diff(map[string]int64{"cluster1": 4, "cluster2": 2}, b.Ledger.DevicesByCluster()); diff != "" {
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
	held := b.Ledger.DevicesByCluster()
	if held["cluster1"]+held["cluster2"] != 2 {
		t.Fatalf("held of two devices: %v", held)
	}
	admits := "cluster1"
	if held[admits] > 0 {
		admits = "cluster2"
	}
	s.wl.Status.ClusterName = &admits
	r.track(t.Context(), s)
	if diff := cmp.Diff(map[string]int64{admits: 2}, b.Ledger.DevicesByCluster()); diff != "" {
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
	if held := b.Ledger.DevicesByCluster(); len(held) != 0 {
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
		if diff := cmp.Diff(want, b.Ledger.DevicesByCluster()); diff != "" {
			t.Errorf("nominate %t: devices held (-want +got):\n%s", nominate, diff)
		}
	}
}

// Kueue that is told to leave nominations to us, while the operator is told to leave them
// to Kueue, leaves every workload Ready for ever.
func TestNobodyNominatesIsSaid(t *testing.T) {
	const evidence = "nobody has nominated a cluster for team-a/job since 12:00:00"
	for name, tc := range map[string]struct {
		nominate  bool
		usable    []string
		nominated []string
		after     time.Duration
		said      string
		look      time.Duration
	}{
		"at once":              {after: 10 * time.Second, usable: []string{"cluster1"}, look: 20 * time.Second},
		"long ago":             {after: time.Minute, usable: []string{"cluster1"}, said: evidence, look: 30 * time.Second},
		"no cluster connected": {after: time.Minute},
		"Kueue nominates":      {after: time.Minute, usable: []string{"cluster1"}, nominated: []string{"cluster1"}},
		"it is for us to do":   {after: time.Minute, usable: []string{"cluster1"}, nominate: true},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		r, s := b.operator(t, nominating(decided(b.holder(noon), noon), tc.nominated...))
		r.nominate, s.usable = tc.nominate, tc.usable
		recorder := events.NewFakeRecorder(9)
		r.recorder = recorder
		b.add(tc.after)
		for range 2 {
			if got := r.watchStock(s); got != tc.look {
				t.Errorf("%s: looks again after %s, want %s", name, got, tc.look)
			}
		}
		s.wl.Name = "another" // what one shows stands for all
		_ = r.watchStock(s)
		if got := r.board.Conflict("gpu", b.clock.now()); got != tc.said {
			t.Errorf("%s: told the gate %q", name, got)
		}
		var want, got []string
		if tc.said != "" {
			want = []string{"Warning NotNominated nobody has nominated a cluster for it since 12:00:00: does multiKueue.dispatcherName in Kueue's configuration name one of its own?"}
		}
		for len(recorder.Events) > 0 {
			got = append(got, <-recorder.Events)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", name, diff)
		}
	}
}
