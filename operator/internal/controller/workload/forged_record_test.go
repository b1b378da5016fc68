package workload

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// A tenant who may write a Workload can forge the annotation plimsoll.dev/dispatch. No forged
// record makes the operator nominate a cluster outside of the gate's configuration.
func TestForgedRecordNominatesNoForeignCluster(t *testing.T) {
	const foreign = "another-tenants-cluster"
	evicted := func(wl *kueue.Workload) *kueue.Workload {
		fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon.Add(-time.Hour))
		return fixture.WithMultiKueue(wl)
	}
	for _, tc := range []struct {
		name     string
		workload func() *kueue.Workload
		record   dispatch.Record
	}{
		{"waiting", func() *kueue.Workload { return fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)) }, fixture.RecordOf(fixture.Noon.Add(-time.Hour), foreign)},
		{"nominated", func() *kueue.Workload {
			return fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-time.Hour)), "cluster1")
		}, fixture.RecordOf(fixture.Noon.Add(-time.Hour), "cluster1", foreign)},
		{"stuck eviction", func() *kueue.Workload { return evicted(fixture.PendingWorkload(fixture.Noon.Add(-time.Hour))) }, fixture.RecordOf(fixture.Noon.Add(-2*time.Hour), foreign)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(map[string]float64{foreign: 8})
			b.create(fixture.WithRecord(tc.workload(), tc.record))
			for range 20 {
				b.reconcile()
				if names := b.workload().Status.NominatedClusterNames; slices.Contains(names, foreign) {
					t.Fatalf("nominated %v", names)
				}
				b.clock.add(30 * time.Second)
			}
		})
	}
}

// The lag of MultiKueue applies to every workload of the hub. It is measured from the operator's own
// nomination, whatever the record says.
func TestForgedRecordDoesNotChangeTheLag(t *testing.T) {
	admit := func(wl *kueue.Workload, at time.Time) {
		cluster := "cluster1"
		wl.Status.ClusterName, wl.Status.NominatedClusterNames = &cluster, nil
		wl.Status.AdmissionChecks[1].State, wl.Status.AdmissionChecks[1].LastTransitionTime = kueue.CheckStateReady, metav1.NewTime(at)
	}
	const took = 20 * time.Second
	for _, tc := range []struct {
		name  string
		forge func(*dispatch.Record)
		adopt bool // another dispatcher nominated the workload
		want  time.Duration
	}{
		{"as the operator wrote it", func(*dispatch.Record) {}, false, took},
		{"nominated just now", func(r *dispatch.Record) { r.NominatedAt = fixture.Noon.Add(took) }, false, took},
		{"nominated in the future", func(r *dispatch.Record) { r.NominatedAt = fixture.Noon.AddDate(70, 0, 0) }, false, took},
		{"nominated long ago", func(r *dispatch.Record) { r.NominatedAt = fixture.Noon.Add(-30 * time.Second) }, false, took},
		{"another attempt", func(r *dispatch.Record) { *r = dispatch.Record{} }, false, took},
		{"not nominated by this process", func(*dispatch.Record) {}, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(onlyCluster1)
			if tc.adopt {
				b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1"), fixture.RecordOf(fixture.Noon, "cluster1")))
			} else {
				b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
			}
			b.reconcile()
			b.clock.add(took)
			b.update(func(wl *kueue.Workload) {
				record, err := dispatch.Decode(wl.Annotations)
				if err != nil {
					t.Fatal(err)
				}
				tc.forge(&record)
				wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: record.Encode()}
				admit(wl, b.now())
			})
			b.reconcile()
			if got := b.engine.Lag(); got != tc.want {
				t.Errorf("lag %s, want %s", got, tc.want)
			}
		})
	}
}

// A nomination that was widened says nothing about MultiKueue: the second cluster may have admitted
// the workload.
func TestWidenedNominationIsNoLag(t *testing.T) {
	h := lifecycle.History{}.Nominated(true, fixture.Noon)
	if !h.NominatedAt.Equal(fixture.Noon) {
		t.Errorf("nominated at %s", h.NominatedAt)
	}
	if h = h.Nominated(false, fixture.Noon.Add(time.Minute)); !h.NominatedAt.IsZero() {
		t.Errorf("widened: nominated at %s", h.NominatedAt)
	}
	if h = h.Nominated(true, fixture.Noon).WithQuota(fixture.PendingWorkload(fixture.Noon), fixture.Noon, fixture.Noon); !h.NominatedAt.IsZero() {
		t.Errorf("other quota: nominated at %s", h.NominatedAt)
	}
}

// A time in the future in the record stops neither a yield nor giving up, and so no hold.
func TestForgedRecordKeepsNoQuota(t *testing.T) {
	minute := int32(60)
	future := fixture.Noon.AddDate(70, 0, 0)
	b := newBench(t, v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &minute}})
	b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
	b.create(fixture.WithRecord(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), dispatch.Record{UnplacedSince: future, LastYield: future, Yields: 9}))
	for range 7 {
		b.reconcile()
		b.clock.add(10 * time.Second)
	}
	b.reconcile()
	if state := b.check().State; state != kueue.CheckStateRejected {
		t.Errorf("the check is %s after giveUpAfterSeconds", state)
	}
}
