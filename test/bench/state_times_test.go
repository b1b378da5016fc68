//go:build labbench

package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// States of a workload besides the conditions of its status.
const (
	stateCreated       = "Created"
	stateCheckAssigned = "CheckAssigned" // has quota and an admission check
	stateCheckReady    = "CheckReady"
)

// stateTimes records when a watch first saw each workload in a state: one of the
// constants above, or a condition type whose status is True.
type stateTimes struct {
	mu    sync.Mutex
	first map[string]map[string]time.Time // state -> workload -> time
	alive map[string]bool                 // workloads that exist
}

// watchWorkloads records the states of the hub's workloads until ctx ends.
func watchWorkloads(ctx context.Context, t *testing.T, lab *fleet.Fleet) *stateTimes {
	t.Helper()
	s := &stateTimes{first: map[string]map[string]time.Time{}, alive: map[string]bool{}}
	objects, err := cache.New(lab.Hub.Config, cache.Options{Scheme: fleet.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := objects.GetInformer(ctx, &kueue.Workload{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.record(o.(*kueue.Workload)) },
		UpdateFunc: func(_, o any) { s.record(o.(*kueue.Workload)) },
		DeleteFunc: func(o any) { s.recordDeletion(o) },
	}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = objects.Start(ctx) }() // a failed start makes WaitForCacheSync fail
	if !objects.WaitForCacheSync(ctx) {
		t.Fatal("cannot watch the hub's workloads")
	}
	return s
}

func (s *stateTimes) record(wl *kueue.Workload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive[wl.Name] = true
	s.mark(stateCreated, wl.Name)
	for _, c := range wl.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			s.mark(c.Type, wl.Name)
		}
	}
	for _, c := range wl.Status.AdmissionChecks {
		if meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) {
			s.mark(stateCheckAssigned, wl.Name)
		}
		if c.State == kueue.CheckStateReady {
			s.mark(stateCheckReady, wl.Name)
		}
	}
}

func (s *stateTimes) mark(state, name string) {
	if s.first[state] == nil {
		s.first[state] = map[string]time.Time{}
	}
	if _, ok := s.first[state][name]; !ok {
		s.first[state][name] = time.Now()
	}
}

func (s *stateTimes) recordDeletion(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alive, o.(*kueue.Workload).Name)
}

func (s *stateTimes) count(state string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.first[state])
}

// await waits until n workloads have been in a state.
func (s *stateTimes) await(t *testing.T, state string, n int) {
	t.Helper()
	poll(t, fmt.Sprintf("%d workloads to be %s", n, state), func() bool { return s.count(state) >= n })
}

// reset waits until all workloads are deleted, and removes all records.
func (s *stateTimes) reset(t *testing.T) {
	t.Helper()
	poll(t, "the deletion of all workloads", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.alive) == 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = map[string]map[string]time.Time{}
}

// between returns the times between two states of each workload, sorted.
func (s *stateTimes) between(from, to string) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for name, at := range s.first[to] {
		all = append(all, at.Sub(s.first[from][name]))
	}
	slices.Sort(all)
	return all
}
