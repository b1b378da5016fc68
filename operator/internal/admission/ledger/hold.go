package ledger

import (
	"cmp"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Hold keeps a cluster free for a workload that waits. Workloads that rank behind it and
// might use the same devices are not sent to the cluster, unless they end before StartsBy.
type Hold struct {
	Gate string `json:"gate"`
	UID  string `json:"uid"`
	// Workload is the workload's namespace/name.
	Workload string         `json:"workload"`
	Cluster  string         `json:"cluster"`
	PodSets  []shape.PodSet `json:"podSets"`
	Rank     Rank           `json:"rank"`
	// Since is when the hold began.
	Since time.Time `json:"since"`
	// StartsBy is the latest time at which the workload can start, if the durations of the
	// workloads on the cluster are known. Zero means unknown.
	StartsBy time.Time `json:"startsBy,omitzero"`
	// Queues are the only ClusterQueues, of the cluster or of the hub, whose workloads the hold binds: the cluster has
	// free devices, and the workload waits for quota that these queues share. Empty means that it binds all.
	Queues []string `json:"queues,omitempty"`
	// Shadow holds are reported and keep nothing free.
	Shadow bool `json:"shadow,omitempty"`
}

// competesWith reports whether both holds are of one gate and might use the same devices.
func (h Hold) competesWith(other Hold) bool {
	return h.Gate == other.Gate && ShareDevices(h.PodSets, other.PodSets)
}

// ShareDevices reports whether any two of the pod sets may use the same devices.
func ShareDevices(a, b []shape.PodSet) bool {
	return slices.ContainsFunc(a, func(p shape.PodSet) bool {
		return slices.ContainsFunc(b, func(q shape.PodSet) bool { return MayShareDevices(p, q) })
	})
}

// setHold replaces the workload's hold and every hold of the gate for the same devices, so
// that a gate has at most one of them. nil removes the workload's hold.
func (l *Ledger) setHold(uid string, h *Hold) {
	before := len(l.holds)
	if h != nil {
		if i := slices.IndexFunc(l.holds, func(old Hold) bool { return old.UID == uid }); i >= 0 && l.holds[i].equals(*h) {
			return
		}
	}
	kept := slices.DeleteFunc(slices.Clone(l.holds), func(old Hold) bool { return old.UID == uid || h != nil && old.competesWith(*h) })
	if h != nil {
		kept = append(kept, *h)
		slices.SortFunc(kept, func(a, b Hold) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Gate, b.Gate)) })
	}
	if h != nil || len(kept) != before {
		l.holds = kept
		l.invalidate()
	}
}

func (h Hold) equals(other Hold) bool {
	return h.Cluster == other.Cluster && h.Gate == other.Gate && h.Shadow == other.Shadow && h.Rank == other.Rank &&
		h.StartsBy.Equal(other.StartsBy) && slices.Equal(h.Queues, other.Queues)
}

// ReleaseHold removes the workload's hold, if it has one.
func (l *Ledger) ReleaseHold(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setHold(uid, nil)
}

// HeldFor returns the cluster that is held for a workload, given by namespace/name; empty = none.
func (l *Ledger) HeldFor(workload string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.holds {
		if h.Workload == workload {
			return h.Cluster
		}
	}
	return ""
}
