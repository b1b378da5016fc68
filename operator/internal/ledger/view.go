package ledger

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Entry is what one workload will take from one cluster and may not yet show
// in the cluster's metrics.
type Entry struct {
	UID       string         `json:"uid"`
	Workload  string         `json:"workload"`
	Cluster   string         `json:"cluster"`
	PodSets   []shape.PodSet `json:"podSets"`
	DebitedAt time.Time      `json:"debited"`
	// Admitted is when the cluster admitted it; zero = not yet.
	AdmittedAt time.Time `json:"admitted,omitzero"`
	// Told: Kueue tells when its pods are ready.
	ReportsPodsReady bool `json:"told,omitempty"`
	// Running is when all its pods were ready; zero = not that anybody knows.
	PodsReadyAt time.Time `json:"running,omitzero"`
	// Ended is when the workload lost its quota or was deleted, on its way or before
	// samples showed it: its copy may still be there. Zero = not.
	EndedAt time.Time `json:"ended,omitzero"`
}

// Devices of the entry.
func (e Entry) Devices() int64 {
	var n int64
	for _, p := range e.PodSets {
		n += p.Devices()
	}
	return n
}

// shown says that a sample of that time shows what the entry took, or that nothing
// is taken any longer.
func (e Entry) isMeasured(sampled time.Time, settle time.Duration) bool {
	after := func(at time.Time, d time.Duration) bool { return !at.IsZero() && sampled.After(at.Add(d)) }
	starts := settle
	if e.ReportsPodsReady {
		starts *= timing.AdmissionSettlePeriods
	}
	settled := e.EndedAt.IsZero() || !e.AdmittedAt.Add(starts).After(e.EndedAt) // the admission, before the end
	return after(e.PodsReadyAt, timing.PodsReadySettle) || after(e.AdmittedAt, starts) && settled || after(e.EndedAt, settle)
}

// Credit is what a finished workload gave back and a sample may not yet show.
type Credit struct {
	Cluster    string
	PodSets    []shape.PodSet
	FinishedAt time.Time
}

// View is the ledger at one moment. It is never changed. What it says of a cluster
// it says beside samples of a given time: what those show is left out.
type View struct {
	settle    time.Duration
	byCluster map[string][]Entry
	credits   map[string][]Credit
}

// Entries of a cluster that samples of that time don't show, in no order.
func (v View) Entries(cluster string, sampled time.Time) []Entry {
	var entries []Entry
	for _, e := range v.byCluster[cluster] {
		if !e.isMeasured(sampled, v.settle) {
			entries = append(entries, e)
		}
	}
	return entries
}

// Slots that entries of other workloads take from pods of p's shape on the
// cluster: pods × max(1, ceil(an entry's devices per pod / p's)).
func (v View) Slots(cluster string, sampled time.Time, uid string, p shape.PodSet) int64 {
	var n int64
	for _, e := range v.byCluster[cluster] {
		if e.UID != uid && !e.isMeasured(sampled, v.settle) {
			for _, other := range e.PodSets {
				n += SlotsTaken(other, p)
			}
		}
	}
	return n
}

// Devices of p's kind that other workloads will take from the cluster.
func (v View) Devices(cluster string, sampled time.Time, uid string, p shape.PodSet) int64 {
	var n int64
	for _, e := range v.byCluster[cluster] {
		if e.UID != uid && !e.isMeasured(sampled, v.settle) {
			n += devicesOfKind(e.PodSets, p)
		}
	}
	return n
}

// Credited are devices of p's kind that came free on the cluster after sampled.
func (v View) Credited(cluster string, sampled time.Time, p shape.PodSet) int64 {
	var n int64
	for _, c := range v.credits[cluster] {
		if c.FinishedAt.After(sampled) {
			n += devicesOfKind(c.PodSets, p)
		}
	}
	return n
}

func SlotsTaken(other, p shape.PodSet) int64 {
	if p.DevicesPerPod == 0 || !mayShareDevices(other, p) {
		return 0
	}
	return other.Pods * max(1, (other.DevicesPerPod+p.DevicesPerPod-1)/p.DevicesPerPod)
}

func devicesOfKind(sets []shape.PodSet, p shape.PodSet) int64 {
	var n int64
	for _, other := range sets {
		if mayShareDevices(other, p) {
			n += other.Devices()
		}
	}
	return n
}

// sameKind says whether two pod sets may want the same devices. An unknown model may be any.
func mayShareDevices(a, b shape.PodSet) bool {
	return a.Resource == b.Resource && (a.Model == b.Model || a.Model == "" || b.Model == "")
}
