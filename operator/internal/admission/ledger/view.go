package ledger

import (
	"iter"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// SampleTimes are the times of the oldest samples of a cluster that a decision rests on.
type SampleTimes struct {
	// Devices is that of the devices on nodes.
	Devices time.Time
	// Quota is that of the reservations in the metrics of the worker's Kueue. Zero means unknown: they
	// are then taken to be up to timing.AdmissionSettlePeriods settling times older than Devices.
	Quota time.Time
}

// View is an immutable copy of the ledger. Its methods take the time of a cluster's oldest
// sample and skip entries that samples of this age already show. The zero View is empty.
type View struct {
	generation uint64
	settle     time.Duration
	byCluster  map[string][]*Entry
	credits    map[string][]Credit
	running    map[string][]*Running
	starts     map[string]*starts
	holds      []Hold
	hasShadows bool
}

// Without returns the view without the entries of some workloads. Commit accepts it like v.
func (v View) Without(uids []string) View {
	if len(uids) == 0 {
		return v
	}
	byCluster := map[string][]*Entry{}
	for cluster, entries := range v.byCluster {
		byCluster[cluster] = slices.DeleteFunc(slices.Clone(entries), func(e *Entry) bool { return slices.Contains(uids, e.UID) })
	}
	v.byCluster = byCluster
	return v
}

// WithoutStarts returns the view without what became of the workloads that clusters admitted. Commit accepts it like v.
func (v View) WithoutStarts() View {
	v.starts = nil
	return v
}

// Enforced returns the view without what gates in mode Shadow would have sent somewhere. Commit accepts it like v.
func (v View) Enforced() View {
	if !v.hasShadows {
		return v
	}
	byCluster := make(map[string][]*Entry, len(v.byCluster))
	for cluster, entries := range v.byCluster {
		byCluster[cluster] = slices.DeleteFunc(slices.Clone(entries), func(e *Entry) bool { return e.Shadow })
	}
	v.byCluster = byCluster
	return v
}

// Reserves reports whether the workload has a reservation of its current attempt on the cluster.
func (v View) Reserves(uid, cluster string) bool {
	return slices.ContainsFunc(v.byCluster[cluster], func(e *Entry) bool { return e.UID == uid && e.isCurrent() })
}

// Entries returns the cluster's entries that its samples do not show yet, in no particular order. Their pod sets lack
// the pods that samples show.
func (v View) Entries(cluster string, sampledAt time.Time) (list []Entry) {
	for e, podSets := range v.unmeasured(cluster, sampledAt, "") {
		rest := *e
		rest.PodSets = podSets
		list = append(list, rest)
	}
	return list
}

// unmeasured are the cluster's entries of workloads other than uid with the pods that its samples do not show yet.
func (v View) unmeasured(cluster string, sampledAt time.Time, uid string) iter.Seq2[*Entry, []shape.PodSet] {
	return func(yield func(*Entry, []shape.PodSet) bool) {
		for _, e := range v.byCluster[cluster] {
			if e.QuotaOnly || e.UID == uid {
				continue
			}
			if podSets, isMeasured := e.unmeasured(sampledAt, v.settle); !isMeasured && !yield(e, podSets) {
				return
			}
		}
	}
}

// Slots returns how many pods of shape p the entries of workloads other than uid displace
// on the cluster. See SlotsTaken for spare and the formula.
func (v View) Slots(cluster string, sampledAt time.Time, uid string, p shape.PodSet, spare int64) int64 {
	t := takenSlots{pod: &p}
	for _, podSets := range v.unmeasured(cluster, sampledAt, uid) {
		t.add(podSets)
	}
	return t.count(spare)
}

// Requests returns the CPU and memory of the pods of workloads other than uid that may start on the nodes of pods of
// shape p.
func (v View) Requests(cluster string, sampledAt time.Time, uid string, p shape.PodSet) (sum shape.Requests) {
	for _, podSets := range v.unmeasured(cluster, sampledAt, uid) {
		sum = sum.Plus(Requests(podSets, p), 1)
	}
	return sum
}

// Devices returns the number of devices suitable for p that workloads other than uid
// have reserved on the cluster.
func (v View) Devices(cluster string, sampledAt time.Time, uid string, p shape.PodSet) (n int64) {
	for _, podSets := range v.unmeasured(cluster, sampledAt, uid) {
		n += SharedDevices(podSets, p)
	}
	return n
}

// QuotaOf returns the quota, with that for devices suitable for p, that workloads other than uid, of some
// queues, use on the cluster and that its samples still show as unreserved.
func (v View) QuotaOf(includes func(Queue) bool, cluster string, at SampleTimes, uid string, p shape.PodSet) (sum Quota) {
	for _, e := range v.byCluster[cluster] {
		if e.UID != uid && includes(e.Queue) && !e.isQuotaMeasured(at, v.settle) {
			sum = sum.Plus(QuotaOf(e.PodSets, p))
		}
	}
	return sum
}

// HeldQuota returns the quota, with that for devices suitable for p, that samples of the cluster may show as reserved by
// workloads other than uid, of some queues, that the hub sent there: those that run, those that the
// cluster may have admitted already, and those that ended so recently that the samples do not show it.
func (v View) HeldQuota(includes func(Queue) bool, cluster string, at SampleTimes, uid string, p shape.PodSet) (sum Quota) {
	for _, r := range v.running[cluster] {
		if includes(r.Queue) {
			sum = sum.Plus(QuotaOf(r.PodSets, p))
		}
	}
	for _, e := range v.byCluster[cluster] {
		if e.UID != uid && e.AdmittedAt.IsZero() && includes(e.Queue) {
			sum = sum.Plus(QuotaOf(e.PodSets, p))
		}
	}
	return sum.Plus(v.ReturnedQuota(includes, cluster, at, p))
}

// ReturnedQuota returns the quota, with that for devices suitable for p, that workloads of some queues gave back so recently
// that samples of the cluster may not show it.
func (v View) ReturnedQuota(includes func(Queue) bool, cluster string, at SampleTimes, p shape.PodSet) (sum Quota) {
	sampledAt := at.Quota
	if sampledAt.IsZero() {
		sampledAt = at.Devices
	}
	for _, c := range v.Credits(cluster, sampledAt) {
		if includes(c.Queue) {
			sum = sum.Plus(QuotaOf(c.PodSets, p))
		}
	}
	return sum
}

// Credited returns the number of devices suitable for p that finished workloads returned
// on the cluster after sampledAt.
func (v View) Credited(cluster string, sampledAt time.Time, p shape.PodSet) int64 {
	var n int64
	for _, c := range v.credits[cluster] {
		if c.FinishedAt.After(sampledAt) {
			n += SharedDevices(c.PodSets, p)
		}
	}
	return n
}

// Credits returns the workloads that ended on the cluster so recently that samples may still show
// their devices as held, in no particular order.
func (v View) Credits(cluster string, sampledAt time.Time) []Credit {
	return slices.DeleteFunc(slices.Clone(v.credits[cluster]), func(c Credit) bool { return sampledAt.After(c.FinishedAt.Add(v.settle)) })
}

// Running returns the workloads that run on the cluster, in no particular order.
func (v View) Running(cluster string) []*Running { return v.running[cluster] }

// HoldsOf returns the holds of a gate, in the order of their clusters.
func (v View) HoldsOf(gate string) []Hold {
	return slices.DeleteFunc(slices.Clone(v.holds), func(h Hold) bool { return h.Gate != gate })
}

// Holds returns all holds, in the order of their clusters.
func (v View) Holds() []Hold { return v.holds }
