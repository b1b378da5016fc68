package workload

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// countingClient lists what it holds, and counts the lists.
type countingClient struct {
	client.Client
	cohorts     []kueue.Cohort
	queues      []kueue.ClusterQueue
	localQueues []kueue.LocalQueue
	workloads   []kueue.Workload
	lists       int
	copied      bool
}

func (c *countingClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	c.lists++
	c.copied = c.copied || o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy
	switch l := list.(type) {
	case *kueue.CohortList:
		l.Items = c.cohorts
	case *kueue.ClusterQueueList:
		l.Items = c.queues
	case *kueue.LocalQueueList:
		l.Items = c.localQueues
	case *kueue.WorkloadList:
		l.Items = c.workloads
	}
	return nil
}

func clusterQueue(name, cohort string) kueue.ClusterQueue {
	return kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort)}}
}

func cohort(name, parent string) kueue.Cohort {
	return kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent)}}
}

func localQueue(name, clusterQueue string) kueue.LocalQueue {
	return kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}}
}

// queuedWorkload holds quota of a ClusterQueue, or waits for quota if that is empty.
func queuedWorkload(name, queue, clusterQueue string) kueue.Workload {
	wl := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)}}
	wl.Spec.QueueName = kueue.LocalQueueName(queue)
	if clusterQueue != "" {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}
	}
	return wl
}

func TestHasOtherPendingWorkload(t *testing.T) {
	inactive := false
	deactivated, finished, deleted := queuedWorkload("other", "gpu", ""), queuedWorkload("other", "gpu", ""), queuedWorkload("other", "gpu", "")
	deactivated.Spec.Active = &inactive
	fixture.SetCondition(&finished, kueue.WorkloadFinished, fixture.Noon)
	deleted.DeletionTimestamp = &metav1.Time{Time: fixture.Noon}
	onHold, gated := queuedWorkload("other", "gpu", ""), queuedWorkload("other", "gpu", "")
	onHold.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: kueue.WorkloadOnHold}}
	gated.Annotations = map[string]string{"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}
	stopped, stoppedLocal := clusterQueue("stopped", "shared"), localQueue("stopped-local", "gpu")
	stopped.Spec.StopPolicy, stoppedLocal.Spec.StopPolicy = new(kueue.Hold), new(kueue.Hold)
	for _, tc := range []struct {
		name  string
		other kueue.Workload
		want  bool
	}{
		{"same queue", queuedWorkload("other", "gpu", ""), true},
		{"same cohort", queuedWorkload("other", "neighbor", ""), true},
		{"a cohort with the same root", queuedWorkload("other", "cousin", ""), true},
		{"another cohort", queuedWorkload("other", "apart", ""), false},
		{"a queue that does not exist", queuedWorkload("other", "none", ""), false},
		{"holds quota", queuedWorkload("other", "gpu", "gpu"), false},
		{"the workload itself in a stale cache", queuedWorkload("big", "gpu", ""), false},
		{"deactivated", deactivated, false},
		{"finished", finished, false},
		{"being deleted", deleted, false},
		{"on hold", onHold, false},
		{"with a closed admission gate", gated, false},
		{"a stopped ClusterQueue of the cohort", queuedWorkload("other", "stopped", ""), false},
		{"a stopped LocalQueue", queuedWorkload("other", "stopped-local", ""), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &countingClient{cohorts: []kueue.Cohort{cohort("shared", "division"), cohort("division", "company"), cohort("research", "company"), cohort("partner", "")},
				queues:      []kueue.ClusterQueue{clusterQueue("gpu", "shared"), clusterQueue("neighbor", "shared"), clusterQueue("cousin", "research"), clusterQueue("apart", "partner"), stopped},
				localQueues: []kueue.LocalQueue{localQueue("gpu", "gpu"), localQueue("neighbor", "neighbor"), localQueue("cousin", "cousin"), localQueue("apart", "apart"), localQueue("stopped", "stopped"), stoppedLocal},
				workloads:   []kueue.Workload{tc.other}}
			big := queuedWorkload("big", "gpu", "gpu")
			if got, err := (&pendingWorkloads{}).hasOther(t.Context(), c, &lifecycle.Situation{Workload: &big, Now: fixture.Noon}); err != nil || got != tc.want {
				t.Errorf("got %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}

// A job yields as a whole: its own components do not count as others.
func TestComponentsOfTheSameJobAreNoOthers(t *testing.T) {
	component := func(name string, index int, job types.UID, clusterQueue string) kueue.Workload {
		wl := *fixture.Replica(index)
		wl.Name, wl.UID, wl.Spec.QueueName, wl.Status = name, types.UID(name), "gpu", queuedWorkload(name, "gpu", clusterQueue).Status
		wl.OwnerReferences[0].UID = job
		return wl
	}
	for _, tc := range []struct {
		name    string
		pending []kueue.Workload
		want    bool
	}{
		{"components of the same job", []kueue.Workload{component("b", 1, "job", ""), component("c", 2, "job", "")}, false},
		{"components of another job", []kueue.Workload{component("b", 1, "another", "")}, true},
		{"components of both", []kueue.Workload{component("b", 1, "job", ""), component("c", 0, "another", "")}, true},
		{"a component and a job of its own", []kueue.Workload{component("b", 1, "job", ""), queuedWorkload("small", "gpu", "")}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &countingClient{queues: []kueue.ClusterQueue{clusterQueue("gpu", "")}, localQueues: []kueue.LocalQueue{localQueue("gpu", "gpu")}, workloads: tc.pending}
			primary := component("a", 0, "job", "gpu")
			if got, err := (&pendingWorkloads{}).hasOther(t.Context(), c, &lifecycle.Situation{Workload: &primary, Now: fixture.Noon}); err != nil || got != tc.want {
				t.Errorf("got %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}

// All waiting workloads share one list, and none lists before its yield is due.
func TestWaitingWorkloadsShareOneList(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	c := &countingClient{queues: []kueue.ClusterQueue{clusterQueue("gpu", "")}, localQueues: []kueue.LocalQueue{localQueue("gpu", "gpu")}}
	b.client = c
	yielding := gatestate.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 300}}}
	full := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, NoRoomAnywhere: true}
	decideAll := func(waited time.Duration) (yields int) {
		c.lists = 0
		for i := range 100 {
			wl := fixture.PendingWorkload(b.now().Add(-waited))
			wl.UID = types.UID(fmt.Sprint("big-", i))
			s := &lifecycle.Situation{Key: b.key, Workload: wl, Now: b.now(), Checks: kueuestate.Checks{Own: []string{"plimsoll"}}, Gate: lifecycle.Gate{Gate: yielding, Known: true}}
			s, err := b.Measure(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if d, _ := lifecycle.WhenUnplaceable(s, full); d.State == gate.Retry {
				yields++
			}
		}
		return yields
	}
	if decideAll(time.Minute); c.lists != 0 {
		t.Errorf("%d lists although no yield is due", c.lists)
	}
	if n := decideAll(time.Hour); n != 0 || c.lists != 4 {
		t.Errorf("%d yield without another pending workload, after %d lists, want 0 after 4", n, c.lists)
	}
	b.clock.add(15 * time.Second)
	c.workloads = []kueue.Workload{queuedWorkload("small", "gpu", "")}
	if n := decideAll(time.Hour); n != 100 || c.lists != 4 || c.copied {
		t.Errorf("%d yield after %d lists (deep copies: %t), want 100 after 4 without copies", n, c.lists, c.copied)
	}
}
