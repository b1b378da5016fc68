package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// Owner is the topmost controller of pods on a worker.
type Owner struct{ Namespace, Name string }

// Holders are the numbers of devices that the pods of each owner hold, by cluster. A cluster that
// reports the owners of its pods is a key, also if none of them holds a device.
type Holders map[string]map[Owner]int64

// namespace of the workload, and of its pods.
func (e Entry) namespace() string {
	namespace, _, _ := strings.Cut(e.Workload, "/")
	return namespace
}

// awaitsHolders reports whether the exporter can show something about the entry that is not
// known yet.
func (e Entry) awaitsHolders() bool {
	return len(e.Owners) > 0 && !e.AdmittedAt.IsZero() && e.PodsReadyAt.IsZero() && e.HeldDevices < e.Devices()
}

// AwaitedHolders returns the owners of admitted pods that the exporter has not shown yet, sorted.
func (l *Ledger) AwaitedHolders() []Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	owners := map[Owner]bool{}
	for _, byCluster := range l.current {
		for _, e := range byCluster {
			if !e.awaitsHolders() {
				continue
			}
			for _, name := range e.Owners {
				owners[Owner{e.namespace(), name}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(owners), func(a, b Owner) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// MarkHeld records the devices that the pods of admitted workloads hold. queriedAt is the start
// of the query: samples from later include these devices. Within a settling time after the
// admission, the metrics may still show pods of an earlier attempt.
func (l *Ledger) MarkHeld(holders Holders, queriedAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, byCluster := range l.current {
		for cluster, e := range byCluster {
			held, isReported := holders[cluster]
			if !e.awaitsHolders() || !isReported || queriedAt.Before(e.AdmittedAt.Add(l.Settle)) {
				continue
			}
			var devices int64
			for _, name := range e.Owners {
				devices += held[Owner{e.namespace(), name}]
			}
			if e.ReportsHolders && devices <= e.HeldDevices {
				continue
			}
			e.ReportsHolders = true
			if devices > e.HeldDevices {
				e.HeldDevices, e.HeldAt = devices, queriedAt
			}
			l.current[uid][cluster] = e
			l.invalidate()
		}
	}
}

// withoutHeld returns the entry without the pods whose devices are held. Which pods of several
// sizes these are is not known: the largest ones stay, so that no room is promised twice.
func (e Entry) withoutHeld() Entry {
	e.PodSets = slices.Clone(e.PodSets)
	devices := e.HeldDevices
	for i := len(e.PodSets) - 1; i >= 0; i-- {
		p := &e.PodSets[i]
		n := min(p.Pods, devices/p.DevicesPerPod)
		p.Pods -= n
		devices -= n * p.DevicesPerPod
	}
	e.PodSets = slices.DeleteFunc(e.PodSets, func(p shape.PodSet) bool { return p.Pods == 0 })
	return e
}
