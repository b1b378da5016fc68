package reclaimpolicy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func stop(policy kueue.StopPolicy) func(client.Object) {
	return func(obj client.Object) {
		switch queue := obj.(type) {
		case *kueue.ClusterQueue:
			queue.Spec.StopPolicy = &policy
		case *kueue.LocalQueue:
			queue.Spec.StopPolicy = &policy
		}
	}
}

func deactivate(obj client.Object) {
	queue, ok := obj.(*kueue.ClusterQueue)
	if ok {
		queue.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionFalse, Message: "Can't admit new workloads"}}
	}
}

// changed returns an object after a change.
func changed[T client.Object](obj T, change func(client.Object)) T {
	change(obj)
	return obj
}

// Under Hold, admitted workloads run on. One that returned its quota would not get it back.
func TestWorkloadOfAStoppedQueueIsProtected(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		queue      client.Object
	}{
		{"ClusterQueue with Hold", "ClusterQueue research is stopped", changed(clusterQueue("research", "fleet"), stop(kueue.Hold))},
		{"ClusterQueue with HoldAndDrain", "ClusterQueue research is stopped", changed(clusterQueue("research", "fleet"), stop(kueue.HoldAndDrain))},
		{"inactive ClusterQueue", "ClusterQueue research is not active: Can't admit new workloads", changed(clusterQueue("research", "fleet"), deactivate)},
		{"LocalQueue with Hold", "LocalQueue research is stopped", changed(localQueue("research"), stop(kueue.Hold))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, nil, running("idle"), clusterQueue("other", "fleet"), localQueue("other"))
			h.replace(clusterQueue("research", "fleet"))
			h.replace(tc.queue)
			h.replace(waiting("waits", func(wl *kueue.Workload) { wl.Spec.QueueName = "other" }))
			h.idle["idle"] = []float64{3600, 3600}
			policy := h.round()
			h.requireUntouched("idle")
			if s := policy.Status.IdleWorkloads; len(s) != 1 || s[0].State != v1alpha1.IdleProtected || !strings.Contains(s[0].Reason, tc.want) {
				t.Errorf("idle workloads %+v", s)
			}

			h, _ = newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeEnforce)
			h.replace(tc.queue)
			h.round()
			h.requireUntouched("small")
		})
	}
	t.Run("no LocalQueue", func(t *testing.T) {
		h := newHub(t, nil, running("idle", func(wl *kueue.Workload) { wl.Spec.QueueName = "deleted" }))
		h.idle["idle"] = []float64{3600, 3600}
		policy := h.round()
		h.requireUntouched("idle")
		if s := policy.Status.IdleWorkloads; len(s) != 1 || s[0].State != v1alpha1.IdleProtected || !strings.Contains(s[0].Reason, "LocalQueue deleted does not exist") {
			t.Errorf("idle workloads %+v", s)
		}
	})
}

// A queue that is stopped during the queries is seen, too.
func TestQueueStoppedDuringTheQueries(t *testing.T) {
	h, g := newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeEnforce)
	g.onRead = func(job string) {
		if job == "small" {
			h.replace(changed(clusterQueue("research", ""), stop(kueue.Hold)))
		}
	}
	h.round()
	h.requireUntouched("small")
}

// Kueue gives the workloads of a stopped queue no quota, so they wait for no devices.
func TestWorkloadsOfStoppedQueuesDoNotWait(t *testing.T) {
	other := func(wl *kueue.Workload) { wl.Spec.QueueName = "other" }
	for _, tc := range []struct {
		name string
		stop func(*hub)
	}{
		{"ClusterQueue", func(h *hub) { h.replace(changed(clusterQueue("other", "fleet"), stop(kueue.Hold))) }},
		{"LocalQueue", func(h *hub) { h.replace(changed(localQueue("other"), stop(kueue.Hold))) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, nil, running("idle"), clusterQueue("other", "fleet"), localQueue("other"))
			h.replace(clusterQueue("research", "fleet"))
			h.replace(waiting("waits", other))
			tc.stop(h)
			h.idle["idle"] = []float64{3600, 3600}
			policy := h.round()
			h.requireUntouched("idle")
			if s := policy.Status.IdleWorkloads; len(s) != 1 || s[0].State != v1alpha1.IdleNotNeeded {
				t.Errorf("idle workloads %+v", s)
			}

			h, _ = newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeEnforce, clusterQueue("other", "fleet"), localQueue("other"), waiting("late", other))
			h.replace(clusterQueue("research", "fleet"))
			tc.stop(h)
			h.round()
			if active, _ := h.isActive("small"); active {
				t.Errorf("small does not move although %s of the only other workload is stopped", tc.name)
			}
		})
	}
}
