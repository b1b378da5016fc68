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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// UnschedulableFor is the time after which a job with unschedulable pods counts as
// misplaced. Pods of a finished job may occupy a node for a few more seconds.
const UnschedulableFor = 10 * time.Second

// JobWatcher watches the jobs of a fleet: their Workloads on the hub, and the
// copies and pods on the workers.
type JobWatcher struct {
	fleet *Fleet

	mu            sync.Mutex
	workloads     map[string]*kueue.Workload          // by job
	pods          map[string]map[types.UID]runningPod // by job
	unschedulable map[types.UID]Misplacement          // by pod
	copies        map[types.UID]bool
	doubleRuns    []string
	misplaced     []Misplacement
	waitingSince  map[string]time.Time // by job
	longestWait   Wait
}

// Misplacement is a job with a pod that was unschedulable on its cluster. Took is zero if it still is.
type Misplacement struct {
	Job, Cluster string
	Since        time.Time
	Took         time.Duration
}

func (m Misplacement) String() string {
	return fmt.Sprintf("%s was unschedulable on %s for %s from %s", m.Job, m.Cluster, m.Took.Round(time.Second), m.Since.Format(time.TimeOnly))
}

// Wait is a time for which an active job had no admitted Workload.
type Wait struct {
	Job  string
	Took time.Duration
}

// replacementFor is the annotation of a slice of an elastic job that names the slice before it.
const replacementFor = "kueue.x-k8s.io/workload-slice-replacement-for"

type runningPod struct{ cluster, name string }

// WatchJobs watches the jobs of the fleet until ctx ends.
func (f *Fleet) WatchJobs(ctx context.Context) (*JobWatcher, error) {
	w := &JobWatcher{fleet: f, workloads: map[string]*kueue.Workload{}, pods: map[string]map[types.UID]runningPod{},
		unschedulable: map[types.UID]Misplacement{}, copies: map[types.UID]bool{}, waitingSince: map[string]time.Time{}}
	if err := f.Hub.watch(ctx, &kueue.Workload{}, w.recordWorkload); err != nil {
		return nil, err
	}
	for _, c := range f.Workers {
		if err := c.watch(ctx, &corev1.Pod{}, func(o client.Object, deleted bool) { w.recordPod(ctx, c.Name, o, deleted) }); err != nil {
			return nil, err
		}
		if err := c.watch(ctx, &kueue.Workload{}, w.recordCopy); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// watch calls record for each change of the kind's objects in the jobs' namespace,
// until ctx ends.
func (c *Cluster) watch(ctx context.Context, kind client.Object, record func(o client.Object, deleted bool)) error {
	objects, err := c.startCache(ctx, cache.Options{DefaultNamespaces: map[string]cache.Config{Namespace: {}}}, kind, record)
	if err != nil {
		return err
	}
	if !objects.WaitForCacheSync(ctx) {
		return fmt.Errorf("cannot watch %T on %s", kind, c.Name)
	}
	return nil
}

func (w *JobWatcher) recordWorkload(o client.Object, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wl := o.(*kueue.Workload)
	for _, owner := range wl.OwnerReferences {
		latest := w.workloads[owner.Name]
		isLatest := latest == nil || latest.UID == wl.UID
		switch {
		case deleted || isReplaced(wl):
			if isLatest {
				delete(w.workloads, owner.Name)
			}
		case isLatest || latest.Annotations[replacementFor] != client.ObjectKeyFromObject(wl).String():
			w.workloads[owner.Name] = wl
		}
		w.recordWait(owner.Name)
	}
}

// isReplaced reports whether the Workload is a slice of an elastic job that has a later one.
func isReplaced(wl *kueue.Workload) bool {
	finished := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return finished != nil && finished.Reason == kueue.WorkloadSliceReplaced
}

// recordWait measures how long the job waits to be admitted after it got quota. Kueue alone decides
// for how long it waits for quota.
func (w *JobWatcher) recordWait(job string) {
	wl := w.workloads[job]
	waits := wl != nil && ptr.Deref(wl.Spec.Active, true) && meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) &&
		!meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) &&
		!meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
	since, waited := w.waitingSince[job]
	switch {
	case waits && !waited:
		w.waitingSince[job] = time.Now()
	case !waits && waited:
		delete(w.waitingSince, job)
		w.longestWait = w.longestWait.orLonger(job, since)
	}
}

func (w Wait) orLonger(job string, since time.Time) Wait {
	if took := time.Since(since); took > w.Took {
		return Wait{job, took}
	}
	return w
}

// LongestWait returns the longest time for which an active job had quota on the hub but was not
// admitted. A slice that resizes an elastic job counts.
func (w *JobWatcher) LongestWait() Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.longestWait
	for job, since := range w.waitingSince {
		longest = longest.orLonger(job, since)
	}
	return longest
}

func (w *JobWatcher) recordCopy(o client.Object, _ bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.copies[o.GetUID()] = true
}

func (w *JobWatcher) recordPod(ctx context.Context, cluster string, o client.Object, deleted bool) {
	pod := o.(*corev1.Pod)
	job := pod.Labels["batch.kubernetes.io/job-name"]
	if job == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recordScheduling(cluster, job, pod, deleted)
	if w.pods[job] == nil {
		w.pods[job] = map[types.UID]runningPod{}
	}
	if deleted || !isRunning(pod) {
		delete(w.pods[job], pod.UID)
		return
	}
	this := runningPod{cluster, pod.Name}
	w.pods[job][pod.UID] = this
	for _, p := range w.pods[job] {
		if p.cluster != cluster {
			go w.confirmDoubleRun(ctx, job, this, p)
		}
	}
}

func isRunning(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning
}

// confirmDoubleRun records that a job runs on two clusters, if both API servers
// still show its pods as running: one of the watches may lag.
func (w *JobWatcher) confirmDoubleRun(ctx context.Context, job string, pods ...runningPod) {
	for _, p := range pods {
		pod := &corev1.Pod{}
		if err := Await(ctx, "a response of "+p.cluster, func(ctx context.Context) error {
			key := client.ObjectKey{Namespace: Namespace, Name: p.name}
			return client.IgnoreNotFound(w.fleet.Worker(p.cluster).Client.Get(ctx, key, pod))
		}); err != nil || !isRunning(pod) { // an error means that the watch has ended
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubleRuns = append(w.doubleRuns, fmt.Sprintf("%s at %s: %v", job, time.Now().Format("15:04:05.000"), pods))
}

// recordScheduling measures how long a pod is unschedulable.
func (w *JobWatcher) recordScheduling(cluster, job string, pod *corev1.Pod, deleted bool) {
	unschedulable := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
	m, known := w.unschedulable[pod.UID]
	switch {
	case unschedulable && !deleted && !known:
		w.unschedulable[pod.UID] = Misplacement{Job: job, Cluster: cluster, Since: time.Now()}
	case known && (deleted || !unschedulable):
		delete(w.unschedulable, pod.UID)
		if m.Took = time.Since(m.Since); m.Took > UnschedulableFor {
			w.misplaced = append(w.misplaced, m)
		}
	}
}

// RunningOn returns the cluster where pods of the job are running, or "".
func (w *JobWatcher) RunningOn(job string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods[job] {
		return p.cluster
	}
	return ""
}

// Workload returns a copy of the job's latest Workload on the hub, or nil.
func (w *JobWatcher) Workload(job string) *kueue.Workload {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.workloads[job].DeepCopy()
}

// HasCondition returns whether a condition of the job's Workload on the hub is
// True.
func (w *JobWatcher) HasCondition(job, condition string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	wl := w.workloads[job]
	return wl != nil && meta.IsStatusConditionTrue(wl.Status.Conditions, condition)
}

// CopyCount returns how many copies of Workloads existed on workers.
func (w *JobWatcher) CopyCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.copies)
}

// DoubleRuns describes each time a job ran on two clusters at once.
func (w *JobWatcher) DoubleRuns() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.doubleRuns)
}

// Misplaced returns the jobs whose pods were unschedulable on their cluster for
// longer than UnschedulableFor, or still are.
func (w *JobWatcher) Misplaced() []Misplacement {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.misplaced)
	for _, m := range w.unschedulable {
		if time.Since(m.Since) > UnschedulableFor {
			all = append(all, m)
		}
	}
	return all
}
