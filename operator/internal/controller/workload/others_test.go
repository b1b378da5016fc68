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
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// counted lists what it holds, and counts how often that is asked for.
type counted struct {
	client.Client
	queues    []kueue.ClusterQueue
	locals    []kueue.LocalQueue
	workloads []kueue.Workload
	lists     int
	copied    bool
}

func (c *counted) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	c.lists++
	c.copied = c.copied || o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy
	switch l := list.(type) {
	case *kueue.ClusterQueueList:
		l.Items = c.queues
	case *kueue.LocalQueueList:
		l.Items = c.locals
	case *kueue.WorkloadList:
		l.Items = c.workloads
	}
	return nil
}

func clusterQueue(name, cohort string) kueue.ClusterQueue {
	return kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort)}}
}

func localQueue(name, clusterQueue string) kueue.LocalQueue {
	return kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}}
}

// queued workload; held in a ClusterQueue, or pending.
func queued(name, queue, held string) kueue.Workload {
	wl := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)}}
	wl.Spec.QueueName = kueue.LocalQueueName(queue)
	if held != "" {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(held)}
	}
	return wl
}

func TestWhoWantsTheQuota(t *testing.T) {
	inactive := false
	asleep, finished, deleted := queued("other", "gpu", ""), queued("other", "gpu", ""), queued("other", "gpu", "")
	asleep.Spec.Active = &inactive
	finished.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for _, tc := range []struct {
		name  string
		other kueue.Workload
		want  bool
	}{
		{"another of the queue", queued("other", "gpu", ""), true},
		{"one of the cohort", queued("other", "neighbor", ""), true},
		{"one elsewhere", queued("other", "apart", ""), false},
		{"one of a queue that does not exist", queued("other", "none", ""), false},
		{"one that has quota", queued("other", "gpu", "gpu"), false},
		{"itself, as it was a moment ago", queued("big", "gpu", ""), false},
		{"one that sleeps", asleep, false},
		{"one that is done", finished, false},
		{"one that is deleted", deleted, false},
	} {
		c := &counted{queues: []kueue.ClusterQueue{clusterQueue("gpu", "shared"), clusterQueue("neighbor", "shared"), clusterQueue("apart", "")},
			locals:    []kueue.LocalQueue{localQueue("gpu", "gpu"), localQueue("neighbor", "neighbor"), localQueue("apart", "apart")},
			workloads: []kueue.Workload{tc.other}}
		r := &Reconciler{client: c, now: time.Now}
		big := queued("big", "gpu", "gpu")
		if got, err := r.othersPending(t.Context(), &big); err != nil || got != tc.want {
			t.Errorf("%s: got %t, %v, want %t", tc.name, got, err, tc.want)
		}
	}
}

// All workloads are looked at once a round, not once for each that waits.
func TestWaitingWorkloadsShareOneLookAtTheOthers(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	c := &counted{queues: []kueue.ClusterQueue{clusterQueue("gpu", "")}, locals: []kueue.LocalQueue{localQueue("gpu", "gpu")}}
	r := &Reconciler{client: c, now: func() time.Time { return now }}
	g := registry.Gate{Spec: v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 300}}}
	full := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, NoRoomAnywhere: true}
	round := func(held time.Duration) (retries int) {
		c.lists = 0
		for i := range 100 {
			wl := queued(fmt.Sprint("big-", i), "gpu", "gpu")
			wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-held))}}
			wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStatePending}}
			d, _, err := r.unplaceable(t.Context(), &subject{wl: &wl, own: []string{"plimsoll"}}, g, full, dispatch.Record{}, now)
			if err != nil {
				t.Fatal(err)
			}
			if d.State == gate.Retry {
				retries++
			}
		}
		return retries
	}
	if round(time.Minute); c.lists != 0 {
		t.Errorf("%d lists though no yield is due", c.lists)
	}
	if n := round(time.Hour); n != 0 || c.lists != 3 {
		t.Errorf("%d yield to nobody, after %d lists, want 0 after 3", n, c.lists)
	}
	now = now.Add(15 * time.Second)
	c.workloads = []kueue.Workload{queued("small", "gpu", "")}
	if n := round(time.Hour); n != 100 || c.lists != 3 || c.copied {
		t.Errorf("%d yield after %d lists (deep copies: %t), want 100 after 3 without copies", n, c.lists, c.copied)
	}
}
