package ledger

import (
	"reflect"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Running is a workload that a cluster has admitted and that has not ended. Unlike an Entry,
// it stays when samples show its devices. The gate uses it to find out what a workload may
// preempt, and when a held cluster becomes free.
type Running struct {
	UID     string
	Cluster string
	// ClusterQueue on the hub. The worker has one of the same name.
	ClusterQueue string
	Priority     int32
	// PodSets are the pods that the workload certainly runs. They have fewer pods than requested if
	// Kueue on the cluster admitted a part.
	PodSets []shape.PodSet
	// Since is when the cluster admitted the workload.
	Since time.Time
	// EndsBy is the latest time at which the workload ends: its admission plus
	// maximumExecutionTimeSeconds. Zero means unknown.
	EndsBy time.Time
}

// PutRunning records or replaces a running workload. MarkEnded and Release remove it.
func (l *Ledger) PutRunning(r Running) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reflect.DeepEqual(l.running[r.UID], r) {
		return
	}
	l.running[r.UID], l.runningByCluster = r, nil
	l.invalidate()
}

// removeRunning forgets a running workload.
func (l *Ledger) removeRunning(uid string) {
	if _, ok := l.running[uid]; ok {
		delete(l.running, uid)
		l.runningByCluster = nil
		l.invalidate()
	}
}

// groupRunning returns the running workloads by cluster. Views share the result until it
// changes.
func (l *Ledger) groupRunning() map[string][]Running {
	if l.runningByCluster == nil {
		l.runningByCluster = map[string][]Running{}
		for _, r := range l.running {
			l.runningByCluster[r.Cluster] = append(l.runningByCluster[r.Cluster], r)
		}
	}
	return l.runningByCluster
}
