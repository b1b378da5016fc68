package world

import (
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
	// used is the quota that each queue has given away, by queue and flavor.
	used map[string]map[string]int64
}

func newLiveWorkloads() liveWorkloads {
	return liveWorkloads{byKey: map[types.NamespacedName]*kueue.Workload{}, waiting: map[types.NamespacedName]bool{}, used: map[string]map[string]int64{}}
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
	old := l.byKey[key]
	if (old == nil) != (wl == nil) {
		l.sorted = nil
	}
	if old != nil {
		l.count(old, -1)
	}
	if wl == nil {
		delete(l.byKey, key)
		delete(l.waiting, key)
		return
	}
	l.byKey[key] = wl
	l.count(wl, 1)
	if wl.Status.Admission == nil && !kueuestate.IsFinished(wl) {
		l.waiting[key] = true
	} else {
		delete(l.waiting, key)
	}
}

// count adds the quota of a workload that holds some, n times.
func (l *liveWorkloads) count(wl *kueue.Workload, n int64) {
	if wl.Status.Admission == nil || kueuestate.IsFinished(wl) {
		return
	}
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
