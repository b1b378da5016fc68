package ledger

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Running is a workload that a cluster has admitted and that has not ended. Unlike an Entry,
// it stays when samples show its devices. The gate uses it to find out what a workload may
// preempt, and when a held cluster becomes free.
type Running struct {
	UID       string
	Namespace string
	Cluster   string
	// Queue on the hub.
	Queue    Queue
	Priority int32
	// PodSets are the pods that the workload certainly runs. They have fewer pods than requested if
	// Kueue on the cluster admitted a part.
	PodSets []shape.PodSet
	// Since is when the cluster admitted the workload.
	Since time.Time
	// ReportsPodsReady: Kueue says whether the pods are ready. StartedAt is when they first were; zero = not yet.
	ReportsPodsReady bool
	StartedAt        time.Time
	// EndsBy is the latest time at which the workload ends: its admission plus
	// maximumExecutionTimeSeconds. Zero means unknown.
	EndsBy time.Time
}

// PutRunning records or replaces a running workload. MarkEnded and Release remove it.
func (l *Ledger) PutRunning(r Running) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.running[r.UID]; old != nil && reflect.DeepEqual(*old, r) {
		return
	}
	l.removeRunning(r.UID)
	l.running[r.UID] = &r
	l.setRunning(r.Cluster, append(l.runningByCluster[r.Cluster], &r)) // views do not read beyond their lists
	l.admit(&r)
	l.invalidate()
}

// removeRunning forgets a running workload.
func (l *Ledger) removeRunning(uid string) {
	r := l.running[uid]
	if r == nil {
		return
	}
	delete(l.running, uid)
	l.leave(r)
	others := slices.Clone(l.runningByCluster[r.Cluster])
	l.setRunning(r.Cluster, slices.DeleteFunc(others, func(other *Running) bool { return other == r }))
	l.invalidate()
}

// setRunning replaces the list of a cluster, which views share.
func (l *Ledger) setRunning(cluster string, list []*Running) {
	l.runningByCluster = maps.Clone(l.runningByCluster)
	if l.runningByCluster == nil {
		l.runningByCluster = map[string][]*Running{}
	}
	if l.runningByCluster[cluster] = list; len(list) == 0 {
		delete(l.runningByCluster, cluster)
	}
}
