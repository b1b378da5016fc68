package ledger

import (
	"math"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Entry is the reservation of one workload on one cluster. It counts against the
// cluster's free devices until the cluster's samples show the workload's pods.
type Entry struct {
	UID string `json:"uid"`
	// Workload is the workload's namespace/name.
	Workload string `json:"workload"`
	Cluster  string `json:"cluster"`
	// Queue on the hub whose quota the workload holds.
	Queue Queue `json:"queue,omitzero"`
	// DecidedBy is the UID of the primary component of the workload's job, if the entry rests on
	// that component's decision. Empty means that it rests on the workload's own.
	DecidedBy string `json:"decidedBy,omitempty"`
	// PodSets are the pods that the workload will start there: fewer than it requests if Kueue on the
	// cluster admits a part.
	PodSets   []shape.PodSet `json:"podSets"`
	DebitedAt time.Time      `json:"debitedAt"`
	// AdmittedAt is when the cluster admitted the workload. Zero means not yet.
	AdmittedAt time.Time `json:"admittedAt,omitzero"`
	// ReportsPodsReady is true if Kueue on the worker sets the workload's PodsReady condition.
	ReportsPodsReady bool `json:"reportsPodsReady,omitempty"`
	// PodsReadyAt is when all pods became ready. Zero means not yet, or not reported.
	PodsReadyAt time.Time `json:"podsReadyAt,omitzero"`
	// Owners are the topmost controllers of the workload's pods: its job, or the pods themselves.
	// Empty means unknown.
	Owners []Owner `json:"owners,omitempty"`
	// ReportsHolders is true if the cluster's metrics show which owners hold devices.
	ReportsHolders bool `json:"reportsHolders,omitempty"`
	// HeldPods is the number of pods that held their devices at HeldAt.
	HeldPods int64     `json:"heldPods,omitempty"`
	HeldAt   time.Time `json:"heldAt,omitzero"`
	// EndedAt is when the workload lost its quota or was deleted before samples showed its
	// pods. The worker may still run its copy for a moment. Zero means not ended.
	EndedAt time.Time `json:"endedAt,omitzero"`
	// Shadow: a gate in mode Shadow would have sent the workload there. Only decisions in that mode count it.
	Shadow bool `json:"shadow,omitempty"`
	// QuotaOnly: samples show its devices, so that it counts against the quota of its ClusterQueue only.
	QuotaOnly bool `json:"-"`
}

// isCurrent reports whether the entry reserves devices for the workload's current attempt. The zero Entry does not.
func (e *Entry) isCurrent() bool { return e.UID != "" && e.EndedAt.IsZero() && !e.QuotaOnly }

// reserves reports what of the entry samples of these times do not show yet. A time of quota does not speak for
// decisions that have none.
func (e *Entry) reserves(at SampleTimes, settle time.Duration) (devices, quota bool) {
	isQuotaMeasured := e.isQuotaMeasured(at, settle) && e.isQuotaMeasured(SampleTimes{Devices: at.Devices}, settle)
	return !e.QuotaOnly && !e.isMeasured(at.Devices, settle), !isQuotaMeasured
}

// Devices returns the number of devices that the entry reserves.
func (e *Entry) Devices() int64 {
	var n int64
	for i := range e.PodSets {
		n += e.PodSets[i].Devices()
	}
	return n
}

// Pods returns the number of pods that the entry reserves devices for.
func (e *Entry) Pods() int64 {
	var n int64
	for i := range e.PodSets {
		n += e.PodSets[i].Pods
	}
	return n
}

// isDecidedBy reports whether the entry rests on the decision of another workload. An empty uid
// decides nothing.
func (e *Entry) isDecidedBy(uid string) bool { return uid != "" && e.DecidedBy == uid }

// isMeasured reports whether a sample taken at sampledAt already includes the entry's
// effect: either the pods hold their devices, or an ended workload has returned them.
// Subtracting such an entry again would count its devices twice.
func (e *Entry) isMeasured(sampledAt time.Time, settle time.Duration) bool {
	isAfter := func(event time.Time, delay time.Duration) bool {
		return !event.IsZero() && sampledAt.After(event.Add(delay))
	}
	startup := settle
	if e.ReportsPodsReady {
		startup *= timing.AdmissionSettlePeriods
	}
	// If the workload ended before its pods had time to start, an admission proves nothing.
	startedBeforeEnd := e.EndedAt.IsZero() || !e.AdmittedAt.Add(startup).After(e.EndedAt)
	// If the cluster reports holders, the admission proves nothing: a pod may wait for a free node,
	// and a sample from before it was scheduled does not show it, however old the admission is.
	return isAfter(e.PodsReadyAt, timing.PodsReadySettle) ||
		isAfter(e.HeldAt, 0) && e.HeldPods >= e.Pods() ||
		isAfter(e.AdmittedAt, startup) && startedBeforeEnd && !e.ReportsHolders ||
		isAfter(e.EndedAt, settle)
}

// isQuotaMeasured reports whether samples of these times already include the entry's quota. Kueue on the
// worker reserves it at the admission, whether the pods start or not. Pods that are ready prove nothing:
// the samples of Kueue may be older than those of the devices.
func (e *Entry) isQuotaMeasured(at SampleTimes, settle time.Duration) bool {
	sampledAt, delay := at.Quota, settle
	if sampledAt.IsZero() {
		sampledAt, delay = at.Devices, settle*timing.AdmissionSettlePeriods
	}
	return !e.AdmittedAt.IsZero() && sampledAt.After(e.AdmittedAt.Add(delay)) ||
		!e.EndedAt.IsZero() && at.Devices.After(e.EndedAt.Add(settle))
}

// unmeasured returns the pods of the entry that a sample taken at sampledAt does not include. It returns true if the
// sample includes all of them.
func (e *Entry) unmeasured(sampledAt time.Time, settle time.Duration) ([]shape.PodSet, bool) {
	switch {
	case e.isMeasured(sampledAt, settle):
		return nil, true
	case e.HeldPods > 0 && sampledAt.After(e.HeldAt):
		return e.podsWithoutDevices(), false
	}
	return e.PodSets, false
}

// Credit records the devices that a finished workload returned. Credits improve a
// cluster's rank until its samples show the devices. They never make room.
type Credit struct {
	Cluster string
	// Queue of the workload.
	Queue      Queue
	PodSets    []shape.PodSet
	FinishedAt time.Time
}

// SlotsTaken returns how many pods of shape p the pods of others displace. spare is the
// number of free devices on nodes that have too few of them for a pod of shape p.
//
//   - A pod of the same size or larger displaces ceil(its devices / devices of p) pods.
//   - Smaller pods take spare devices first. Together they displace
//     ceil(their devices beyond spare / devices of p) pods: workers pack small pods.
//
// Pods that cannot use the devices of p displace none. For pods that share devices, see
// sharesTaken.
func SlotsTaken(others []shape.PodSet, p shape.PodSet, spare int64) int64 {
	t := takenSlots{pod: &p}
	t.add(others)
	return t.count(spare)
}

// takenSlots sums up what SlotsTaken returns.
type takenSlots struct {
	pod *shape.PodSet
	// slots are those that pods displace which share devices, or which are not smaller. small are the devices of smaller
	// pods.
	slots, small int64
}

func (t *takenSlots) add(others []shape.PodSet) {
	p := t.pod
	if p.Share != nil {
		t.slots = min(t.slots+sharesTaken(others, *p), math.MaxInt32)
		return
	}
	for i := range others {
		switch other := &others[i]; {
		case !mayShareDevices(other, p):
		case other.DevicesPerPod >= p.DevicesPerPod:
			t.slots += other.Pods * ceilDiv(other.DevicesPerPod, p.DevicesPerPod)
		default:
			t.small += other.Devices()
		}
	}
}

func (t *takenSlots) count(spare int64) int64 {
	if t.pod.Share != nil {
		return t.slots
	}
	return t.slots + ceilDiv(max(t.small-spare, 0), t.pod.DevicesPerPod)
}

// sharesTaken returns how many pods of shape p the pods of others displace at most, wherever the
// cluster starts them: on each of its devices, a pod displaces as many as its memory, its cores or
// its replica, whichever is most. No cluster has room if the size of a device decides. Pods of gates
// that fit whole devices count only if the size does not matter: they may be on nodes that share
// nothing, and some are always in flight.
func sharesTaken(others []shape.PodSet, p shape.PodSet) int64 {
	var slots int64
	for _, other := range others {
		if !MayShareDevices(other, p) {
			continue
		}
		perDevice, ok := p.Share.SlotsTaken(partOf(other))
		switch {
		case !ok && other.Share == nil:
			continue
		case !ok:
			return math.MaxInt32
		}
		// Kueue counts no device of some pods, so that nothing limits what they request. The sum must
		// not overflow: a negative one would add room.
		slots = min(slots+min(other.Devices(), math.MaxInt32)*perDevice, math.MaxInt32)
	}
	return slots
}

// SharesReturned returns how many pods of shape p, which share devices, can start at least when the
// pods of held end.
func SharesReturned(held, p shape.PodSet) int64 {
	return held.Devices() * p.Share.SlotsReturned(partOf(held)) / p.DevicesPerPod
}

// partOf returns the part of each device that a pod holds.
func partOf(p shape.PodSet) shape.Share {
	if p.Share == nil { // of a gate that fits whole devices
		return shape.Share{MemoryPercent: 100, CorePercent: 100}
	}
	return *p.Share
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// SharedDevices returns the number of devices in sets that p might use as well.
func SharedDevices(sets []shape.PodSet, p shape.PodSet) int64 {
	var n int64
	for i := range sets {
		if other := &sets[i]; mayShareDevices(other, &p) {
			n += other.Devices()
		}
	}
	return n
}

// Requests returns the CPU and memory of the pods in sets that may start on nodes of pods of shape p.
func Requests(sets []shape.PodSet, p shape.PodSet) (sum shape.Requests) {
	for i := range sets {
		if other := &sets[i]; mayShareDevices(other, &p) {
			sum = sum.Plus(other.Requests, other.Pods)
		}
	}
	return sum
}

// MayShareDevices reports whether two pod sets may use the same devices. An empty model
// matches every model.
func MayShareDevices(a, b shape.PodSet) bool { return mayShareDevices(&a, &b) }

func mayShareDevices(a, b *shape.PodSet) bool {
	return a.Resource == b.Resource && (a.Model == b.Model || a.Model == "" || b.Model == "")
}
