package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// UnschedulableFor is how long a pod may wait for a node before its job counts as
// one that did not fit: pods of a job that has just ended may still be going.
const UnschedulableFor = 10 * time.Second

// Sightings of Workloads on the hub, and of Workloads and pods on the workers.
type Sightings struct {
	fleet *Fleet

	mu        sync.Mutex
	workloads map[string]*kueue.Workload       // by job
	pods      map[string]map[types.UID]sighted // by job
	stuck     map[types.UID]time.Time          // unschedulable since
	copies    map[types.UID]bool
	twice     []string
	misfits   []string
}

// sighted is a pod that runs.
type sighted struct{ cluster, name string }

// Watch what becomes of jobs, all over the fleet, until ctx ends.
func (f *Fleet) Watch(ctx context.Context) (*Sightings, error) {
	s := &Sightings{fleet: f, workloads: map[string]*kueue.Workload{}, pods: map[string]map[types.UID]sighted{},
		stuck: map[types.UID]time.Time{}, copies: map[types.UID]bool{}}
	if err := f.Hub.watch(ctx, &kueue.Workload{}, s.workloadSeen); err != nil {
		return nil, err
	}
	for _, w := range f.Workers {
		if err := w.watch(ctx, &corev1.Pod{}, func(o client.Object, gone bool) { s.podSeen(ctx, w.Name, o, gone) }); err != nil {
			return nil, err
		}
		if err := w.watch(ctx, &kueue.Workload{}, s.copySeen); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// watch the objects of a kind in the jobs' namespace until ctx ends.
func (c *Cluster) watch(ctx context.Context, kind client.Object, see func(o client.Object, gone bool)) error {
	objects, err := cache.New(c.Config, cache.Options{Scheme: Scheme, DefaultNamespaces: map[string]cache.Config{Namespace: {}}})
	if err != nil {
		return err
	}
	informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { see(o.(client.Object), false) },
		UpdateFunc: func(_, o any) { see(o.(client.Object), false) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			see(o.(client.Object), true)
		},
	}); err != nil {
		return err
	}
	go func() { _ = objects.Start(ctx) }() // ends with ctx
	if !objects.WaitForCacheSync(ctx) {
		return fmt.Errorf("%T of %s can't be watched", kind, c.Name)
	}
	return nil
}

func (s *Sightings) workloadSeen(o client.Object, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, owner := range o.GetOwnerReferences() {
		if gone {
			delete(s.workloads, owner.Name)
		} else {
			s.workloads[owner.Name] = o.(*kueue.Workload)
		}
	}
}

// copySeen counts each copy of a Workload once.
func (s *Sightings) copySeen(o client.Object, _ bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies[o.GetUID()] = true
}

func (s *Sightings) podSeen(ctx context.Context, cluster string, o client.Object, gone bool) {
	pod := o.(*corev1.Pod)
	job := pod.Labels["batch.kubernetes.io/job-name"]
	if job == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scheduled(cluster, job, pod, gone)
	if s.pods[job] == nil {
		s.pods[job] = map[types.UID]sighted{}
	}
	if gone || !podRuns(pod) {
		delete(s.pods[job], pod.UID)
		return
	}
	s.pods[job][pod.UID] = sighted{cluster, pod.Name}
	for _, other := range s.pods[job] {
		if other.cluster != cluster {
			go s.confirm(ctx, job, sighted{cluster, pod.Name}, other)
		}
	}
}

func podRuns(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning
}

// confirm that a job runs in two places, by asking both: one watch may lag.
func (s *Sightings) confirm(ctx context.Context, job string, places ...sighted) {
	for _, p := range places {
		pod := &corev1.Pod{}
		var err error
		if Await(ctx, p.cluster+" to answer", func(ctx context.Context) error {
			err = client.IgnoreNotFound(s.fleet.Worker(p.cluster).Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: p.name}, pod))
			return err
		}) != nil || !podRuns(pod) {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.twice = append(s.twice, fmt.Sprintf("%s at %s: %v", job, time.Now().Format("15:04:05.000"), places))
}

// scheduled notes how long the scheduler found no node for a pod.
func (s *Sightings) scheduled(cluster, job string, pod *corev1.Pod, gone bool) {
	waits := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
	since, known := s.stuck[pod.UID]
	switch {
	case waits && !gone && !known:
		s.stuck[pod.UID] = time.Now()
	case known && (gone || !waits):
		delete(s.stuck, pod.UID)
		if took := time.Since(since); took > UnschedulableFor {
			s.misfits = append(s.misfits, fmt.Sprintf("%s waited %s for a node of %s, from %s on", job, took.Round(time.Second), cluster, since.Format("15:04:05")))
		}
	}
}

// RunsOn is where pods of the job run; "" = nowhere.
func (s *Sightings) RunsOn(job string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods[job] {
		return p.cluster
	}
	return ""
}

// Workload of a job as last seen on the hub; nil = none. It is the caller's.
func (s *Sightings) Workload(job string) *kueue.Workload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workloads[job].DeepCopy()
}

// Is says whether a condition of the job's Workload on the hub is True.
func (s *Sightings) Is(job, condition string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	wl := s.workloads[job]
	return wl != nil && meta.IsStatusConditionTrue(wl.Status.Conditions, condition)
}

// Copies of Workloads that were ever made on workers.
func (s *Sightings) Copies() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.copies)
}

// Twice are the jobs that ran in two places at once, and when.
func (s *Sightings) Twice() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.twice)
}

// Misfits are the jobs whose pods found no node where they were sent, and for
// how long; those that still wait are among them.
func (s *Sightings) Misfits() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.misfits)
	for uid, since := range s.stuck {
		if took := time.Since(since); took > UnschedulableFor {
			all = append(all, fmt.Sprintf("pod %s waits for a node since %s", uid, since.Format("15:04:05")))
		}
	}
	return all
}
