package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Owner is the topmost controller of pods on a worker.
type Owner struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
}

// Holders are the numbers of pods of each owner that hold devices, by cluster. A cluster that
// reports the owners of its pods is a key, also if none of them holds a device.
type Holders map[string]map[Owner]int64

// awaitsHolders reports whether the exporter can show something about the entry that is not
// known yet.
func (e *Entry) awaitsHolders() bool {
	return e.isCurrent() && len(e.Owners) > 0 && !e.AdmittedAt.IsZero() && e.PodsReadyAt.IsZero() && e.HeldPods < e.Pods()
}

// AwaitedHolders returns the owners of admitted pods that the exporter has not shown yet, sorted.
func (l *Ledger) AwaitedHolders() []Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	owners := map[Owner]bool{}
	for e := range l.all() {
		if !e.awaitsHolders() {
			continue
		}
		for _, owner := range e.Owners {
			owners[owner] = true
		}
	}
	return slices.SortedFunc(maps.Keys(owners), func(a, b Owner) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// MarkHeld records how many pods of admitted workloads hold devices. A kubelet gives a pod all of
// its devices at once, so pods count, and not devices: a device that several pods share has
// several holders. queriedAt is the start of the query: samples from later include these devices.
// Within a settling time after the admission, the metrics may still show pods of an earlier attempt.
func (l *Ledger) MarkHeld(holders Holders, queriedAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.all() {
		held, isReported := holders[e.Cluster]
		if !e.awaitsHolders() || !isReported || queriedAt.Before(e.AdmittedAt.Add(l.Settle)) {
			continue
		}
		var pods int64
		for _, owner := range e.Owners {
			pods += held[owner]
		}
		if e.ReportsHolders && pods <= e.HeldPods {
			continue
		}
		shown := *e
		shown.ReportsHolders, shown.HeldPods, shown.HeldAt = true, pods, queriedAt
		l.put(shown)
	}
}

// podsWithoutDevices are the pods that do not hold their devices. Which pods of several sizes these are is not known: the
// largest ones stay, so that no room is promised twice.
func (e *Entry) podsWithoutDevices() []shape.PodSet {
	podSets, held := slices.Clone(e.PodSets), e.HeldPods
	for i := len(podSets) - 1; i >= 0; i-- {
		p := &podSets[i]
		n := min(p.Pods, held)
		p.Pods -= n
		held -= n
	}
	return slices.DeleteFunc(podSets, func(p shape.PodSet) bool { return p.Pods == 0 })
}
