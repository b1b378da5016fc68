package workload

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// Workloads that wait for quota cost nothing. Everything that ends a reservation is seen.
func TestEventsOfWorkloads(t *testing.T) {
	queued := func() *kueue.Workload {
		wl := fixture.PendingWorkload(fixture.Noon)
		wl.Status.Admission, wl.Status.Conditions = nil, nil
		return wl
	}
	reserved := func() *kueue.Workload { return fixture.PendingWorkload(fixture.Noon) }
	finished := reserved()
	fixture.SetCondition(finished, kueue.WorkloadFinished, fixture.Noon)
	deleting := reserved()
	deleting.DeletionTimestamp = &metav1.Time{Time: fixture.Noon}
	for _, tc := range []struct {
		name     string
		old, now *kueue.Workload
		want     bool
	}{
		{"waits for quota", queued(), queued(), false},
		{"reserves quota", queued(), reserved(), true},
		{"holds quota", reserved(), reserved(), true},
		{"loses its quota", reserved(), queued(), true},
		{"finishes", reserved(), finished, true},
		{"is finished", finished, finished, false},
		{"is being deleted", reserved(), deleting, true},
		{"waits for quota with a Ready check", fixture.ReadyFor(queued(), "cluster1", fixture.Noon), fixture.ReadyFor(queued(), "cluster1", fixture.Noon), true},
		{"is finished with a Ready check", fixture.ReadyFor(finished.DeepCopy(), "cluster1", fixture.Noon), fixture.ReadyFor(finished.DeepCopy(), "cluster1", fixture.Noon), false},
		{"yielded", fixture.WithRecord(queued(), dispatch.Record{SleepsUntil: fixture.Noon}), fixture.WithRecord(queued(), dispatch.Record{SleepsUntil: fixture.Noon}), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := concernsGate.Update(event.UpdateEvent{ObjectOld: tc.old, ObjectNew: tc.now}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
	if concernsGate.Create(event.CreateEvent{Object: queued()}) || !concernsGate.Create(event.CreateEvent{Object: reserved()}) {
		t.Error("of new workloads only those with quota need a step")
	}
	if !concernsGate.Delete(event.DeleteEvent{Object: queued()}) {
		t.Error("the deletion ends what is remembered of the workload")
	}
}

func TestEventsOfMultiKueueClusters(t *testing.T) {
	cluster := func(status metav1.ConditionStatus, version string) *kueue.MultiKueueCluster {
		c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
		c.Status.Conditions = []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: status}}
		return c
	}
	if isConnectionChange.Update(event.UpdateEvent{ObjectOld: cluster(metav1.ConditionTrue, "1"), ObjectNew: cluster(metav1.ConditionTrue, "2")}) {
		t.Error("an update without a change of the connection concerns no workload")
	}
	if !isConnectionChange.Update(event.UpdateEvent{ObjectOld: cluster(metav1.ConditionFalse, "1"), ObjectNew: cluster(metav1.ConditionTrue, "2")}) {
		t.Error("a new connection concerns workloads")
	}
}
