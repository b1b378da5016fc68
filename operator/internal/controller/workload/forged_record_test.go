package workload

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
)

// A tenant who may write a Workload can forge the annotation plimsoll.dev/dispatch. No forged
// record makes the operator nominate a cluster outside of the gate's configuration.
func TestForgedRecordNominatesNoForeignCluster(t *testing.T) {
	const foreign = "another-tenants-cluster"
	evicted := func(wl *kueue.Workload) *kueue.Workload {
		setCondition(wl, kueue.WorkloadEvicted, noon.Add(-time.Hour))
		return withMultiKueue(wl)
	}
	for _, tc := range []struct {
		name     string
		workload func() *kueue.Workload
		record   dispatch.Record
	}{
		{"waiting", func() *kueue.Workload { return withMultiKueue(pendingWorkload(noon)) }, recordOf(noon.Add(-time.Hour), foreign)},
		{"nominated", func() *kueue.Workload { return nominated(pendingWorkload(noon.Add(-time.Hour)), "cluster1") }, recordOf(noon.Add(-time.Hour), "cluster1", foreign)},
		{"stuck eviction", func() *kueue.Workload { return evicted(pendingWorkload(noon.Add(-time.Hour))) }, recordOf(noon.Add(-2*time.Hour), foreign)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(map[string]float64{foreign: 8})
			b.create(withRecord(tc.workload(), tc.record))
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

// No record places a workload before one that was created earlier: it waits neither since before its
// creation nor since after its reservation.
func TestForgedRecordDoesNotChangeTheOrder(t *testing.T) {
	c := chance{rand.New(rand.NewPCG(3, 4))}
	for range 5_000 {
		created := noon.Add(-time.Duration(c.IntN(1200)) * time.Second)
		record := c.record()
		if c.oneIn(2) {
			record.WaitsSince = time.Unix(c.Int64N(1<<33), 0)
		}
		o := observationWith(func(o *observation) {
			o.wl.CreationTimestamp = metav1.NewTime(created)
			withRecord(o.wl, record)
		})
		if since := o.rank().Since; since.Before(created) || since.After(noon) {
			t.Fatalf("created at %s, reserved at %s, waits since %s with %+v", created, noon, since, record)
		}
	}
}

// A workload that yielded keeps its place.
func TestYieldKeepsThePlace(t *testing.T) {
	first := noon.Add(-time.Hour)
	for _, tc := range []struct {
		name    string
		created time.Time
		want    time.Time
	}{
		{"created before", first.Add(-time.Minute), first},
		{"created later than its record says", noon.Add(-time.Minute), noon.Add(-time.Minute)},
		{"created after the reservation, by another clock", noon.Add(time.Minute), noon},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := observationWith(func(o *observation) {
				o.wl.CreationTimestamp = metav1.NewTime(tc.created)
				withRecord(o.wl, dispatch.Record{WaitsSince: first, Yields: 1})
			})
			if got := o.rank().Since; !got.Equal(tc.want) {
				t.Errorf("waits since %s, want %s", got, tc.want)
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
		{"nominated just now", func(r *dispatch.Record) { r.NominatedAt = noon.Add(took) }, false, took},
		{"nominated in the future", func(r *dispatch.Record) { r.NominatedAt = noon.AddDate(70, 0, 0) }, false, took},
		{"nominated long ago", func(r *dispatch.Record) { r.NominatedAt = noon.Add(-30 * time.Second) }, false, took},
		{"another attempt", func(r *dispatch.Record) { *r = dispatch.Record{} }, false, took},
		{"not nominated by this process", func(*dispatch.Record) {}, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(onlyCluster1)
			if tc.adopt {
				b.create(withRecord(nominated(pendingWorkload(noon), "cluster1"), recordOf(noon, "cluster1")))
			} else {
				b.create(withMultiKueue(pendingWorkload(noon)))
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
			if got := b.lag.At(b.now()); got != tc.want {
				t.Errorf("lag %s, want %s", got, tc.want)
			}
		})
	}
}

// A nomination that was widened says nothing about MultiKueue: the second cluster may have admitted
// the workload.
func TestWidenedNominationIsNoLag(t *testing.T) {
	h := history{}.nominated(true, noon)
	if !h.nominatedAt.Equal(noon) {
		t.Errorf("nominated at %s", h.nominatedAt)
	}
	if h = h.nominated(false, noon.Add(time.Minute)); !h.nominatedAt.IsZero() {
		t.Errorf("widened: nominated at %s", h.nominatedAt)
	}
	if h = h.nominated(true, noon).withQuota(pendingWorkload(noon), noon, noon); !h.nominatedAt.IsZero() {
		t.Errorf("other quota: nominated at %s", h.nominatedAt)
	}
}

// A time in the future in the record stops neither a yield nor giving up, and so no hold.
func TestForgedRecordKeepsNoQuota(t *testing.T) {
	minute := int32(60)
	future := noon.AddDate(70, 0, 0)
	b := newBench(t, v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &minute}})
	b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
	b.create(withRecord(withMultiKueue(pendingWorkload(noon)), dispatch.Record{UnplacedSince: future, LastYield: future, Yields: 9}))
	for range 7 {
		b.reconcile()
		b.clock.add(10 * time.Second)
	}
	b.reconcile()
	if state := b.check().State; state != kueue.CheckStateRejected {
		t.Errorf("the check is %s after giveUpAfterSeconds", state)
	}
}
