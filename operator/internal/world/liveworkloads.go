package world

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// liveWorkloads are the live objects of an API server, with what Kueue asks of all of them. It is kept with
// each change: fleets have many thousand Workloads, of which few change at a time.
type liveWorkloads struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]*kueue.Workload
	// sorted are the names; nil after one was added or removed. It is replaced, never changed.
	sorted []types.NamespacedName
	// waiting are the names of those that neither hold quota nor have finished.
	waiting map[types.NamespacedName]bool
	// undecided are the names of those with quota that have no cluster, or whose gate has not decided.
	undecided map[types.NamespacedName]bool
	// sent are the names of those that were sent to a cluster and have not finished, by cluster.
	sent map[string]map[types.NamespacedName]bool
	// used is the quota that each queue has given away, by queue and flavor.
	used map[string]map[string]int64
}

func newLiveWorkloads() liveWorkloads {
	return liveWorkloads{byKey: map[types.NamespacedName]*kueue.Workload{}, waiting: map[types.NamespacedName]bool{},
		undecided: map[types.NamespacedName]bool{}, sent: map[string]map[types.NamespacedName]bool{}, used: map[string]map[string]int64{}}
}

func (l *liveWorkloads) get(key types.NamespacedName) *kueue.Workload {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byKey[key]
}

// put replaces a live object; nil = it is gone.
func (l *liveWorkloads) put(key types.NamespacedName, wl *kueue.Workload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.byKey[key]; old != nil {
		l.forget(key, old)
	} else {
		l.sorted = nil
	}
	if wl == nil {
		delete(l.byKey, key)
		l.sorted = nil
		return
	}
	l.byKey[key] = wl
	switch {
	case kueuestate.IsFinished(wl):
		return
	case wl.Status.Admission == nil:
		l.waiting[key] = true
	default:
		l.count(wl, 1)
		if check := kueuestate.FindCheck(wl, checkName); wl.Status.ClusterName == nil || check != nil && check.State == kueue.CheckStatePending {
			l.undecided[key] = true
		}
	}
	for cluster := range sentTo(wl) {
		if l.sent[cluster] == nil {
			l.sent[cluster] = map[types.NamespacedName]bool{}
		}
		l.sent[cluster][key] = true
	}
}

// forget undoes what put noted of an object.
func (l *liveWorkloads) forget(key types.NamespacedName, old *kueue.Workload) {
	if kueuestate.IsFinished(old) {
		return
	}
	if old.Status.Admission != nil {
		l.count(old, -1)
	}
	delete(l.waiting, key)
	delete(l.undecided, key)
	for cluster := range sentTo(old) {
		delete(l.sent[cluster], key)
	}
}

// sentTo are the clusters that a workload was sent to.
func sentTo(wl *kueue.Workload) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range wl.Status.NominatedClusterNames {
			if !yield(name) {
				return
			}
		}
		if wl.Status.ClusterName != nil {
			yield(*wl.Status.ClusterName)
		}
	}
}

// count adds the quota that a workload holds, n times.
func (l *liveWorkloads) count(wl *kueue.Workload, n int64) {
	queue := string(wl.Status.Admission.ClusterQueue)
	for flavor, devices := range requestOf(wl) {
		addTo(l.used, queue, flavor, n*devices)
	}
}

func addTo(used map[string]map[string]int64, queue, flavor string, n int64) {
	if used[queue] == nil {
		used[queue] = map[string]int64{}
	}
	used[queue][flavor] += n
}

func (l *liveWorkloads) keys() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sorted == nil {
		l.sorted = slices.SortedFunc(maps.Keys(l.byKey), compareKeys)
	}
	return l.sorted
}

func (l *liveWorkloads) pending() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.waiting), compareKeys)
}

// undecidedKeys are the names of workloads with quota that have no cluster, or whose gate has not decided, in no order.
func (l *liveWorkloads) undecidedKeys() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.undecided))
}

// anySent reports whether a condition holds for any of the workloads that were sent to a cluster.
func (l *liveWorkloads) anySent(cluster string, holds func(types.NamespacedName) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.sent[cluster] {
		if holds(key) {
			return true
		}
	}
	return false
}

func (l *liveWorkloads) usage() map[string]map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := make(map[string]map[string]int64, len(l.used))
	for queue, byFlavor := range l.used {
		used[queue] = maps.Clone(byFlavor)
	}
	return used
}

// copyOfWorkload is a copy that may be changed in metadata, status, and the first level of the spec: its pod
// templates are shared.
func copyOfWorkload(wl *kueue.Workload) *kueue.Workload {
	c := *wl
	c.Annotations, c.Labels = maps.Clone(wl.Annotations), maps.Clone(wl.Labels)
	c.Spec.PodSets = slices.Clone(wl.Spec.PodSets)
	wl.Status.DeepCopyInto(&c.Status)
	return &c
}
