package gate

import (
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// evaluateRoom places the workload's pod sets on the cluster, the largest pods first. Each
// pod set reduces the room of the following ones. At last, the cluster must not be held for
// another workload.
func (e *evaluation) evaluateRoom(v Verdict, c *Candidate, view ledger.View) Verdict {
	for i, p := range e.facts.PodSets {
		if broken, ok := e.cannotTest(c, i); ok {
			return v.withCapacity(c, i).reject(broken)
		}
		r := e.room(c, i, view)
		preemptible := r.lower + r.borrowed
		tooSmall := r.free+preemptible < r.pods && v.Rejection == RejectNone
		if i == 0 || tooSmall {
			v.Fit, v.Room, v.Largest, v.Quota = Known(max(r.fit, 0)), Known(max(r.free+preemptible, 0)), c.Shapes[i].Largest, r.quota
			v.DeviceFit, v.Taints, v.QuotaResource = c.Shapes[i].DeviceFit, c.Shapes[i].untolerated(), r.quotaResource
		}
		if tooSmall {
			v = v.reject(BrokenRule{RejectNoRoom, p.Name})
		}
		if r.pods < float64(p.Pods) {
			v.PartialPods = int64(r.pods)
		}
		v.Preempts = v.Preempts || r.free < r.pods
		v.Reclaims = v.Reclaims || r.free+r.lower < r.pods
		v.LacksQuota = v.LacksQuota || r.shortage > 0
		v.QuotaUnknown = v.QuotaUnknown || e.facts.Remote && !e.rules.PreemptsUncounted && !c.Shapes[i].Quota.Known
	}
	v.Preempts = v.Preempts && v.Rejection == RejectNone
	v.Reclaims = v.Reclaims && v.Preempts
	if v.Rejection == RejectNone && e.isQuotaFailing(c) {
		v = v.reject(BrokenRule{RejectQuotaFailing, ""})
	}
	if h := e.bindingHold(c, view); h != nil && v.Rejection == RejectNone {
		v = v.reject(BrokenRule{RejectHeld, h.Workload})
	}
	return e.addDevices(v, c, view)
}

// cannotTest returns why there is no room to test for the i-th pod set: the cluster lacks the devices
// or a queue with quota for them, or its metrics do not say how many of the devices are free. It returns
// false if the room can be tested.
func (e *evaluation) cannotTest(c *Candidate, i int) (BrokenRule, bool) {
	p := e.facts.PodSets[i]
	switch {
	case i < len(c.Shapes) && !c.Shapes[i].Fit.Known && c.Shapes[i].Capacity.Value > 0:
		return BrokenRule{RejectNoFit, deviceName(p)}, true
	case i >= len(c.Shapes) || !c.Shapes[i].Fit.Known:
		return BrokenRule{RejectNoModel, deviceName(p)}, true
	case c.Shapes[i].QueueMissing:
		return BrokenRule{RejectNoQueue, p.Resource + " in ClusterQueue " + e.queueName(c)}, true
	}
	return BrokenRule{}, false
}

// queueName returns the name of the worker's ClusterQueue for the workload, and where it is known from.
func (e *evaluation) queueName(c *Candidate) string {
	local := "LocalQueue " + e.queue().Local
	switch queue := c.LocalQueues[e.queue().Local]; {
	case queue != "":
		return queue + ", to which its " + local + " points"
	case c.LocalQueues != nil:
		return e.facts.ClusterQueue + ", and no " + local
	}
	return e.facts.ClusterQueue + ", the name on the hub, and does not report where its " + local + " points"
}

// withCapacity adds the number of devices for the i-th pod set, if it is known.
func (v Verdict) withCapacity(c *Candidate, i int) Verdict {
	if i < len(c.Shapes) {
		v.Capacity = c.Shapes[i].Capacity.Value
	}
	return v
}

// podRoom is the room for one pod set on one cluster, in pods.
type podRoom struct {
	// pods are those that start: fewer than requested if Kueue on the worker admits a part.
	pods float64
	// fit is the room before the ledger is subtracted, free the room after that. free may be
	// negative.
	fit, free float64
	// onNodes is the room by devices alone, whatever quota is left: free and, for a workload that may
	// preempt others, what that adds.
	onNodes float64
	// lower and borrowed are the room that the workload would gain if it preempted lower
	// priorities of its ClusterQueue, and borrowers in the cohort.
	lower, borrowed float64
	// shortage is the number of pods for which the worker's queue has no quota, if the workload may
	// preempt others for it.
	shortage float64
	// quota is the number of pods for which the worker's queue has quota or can get it by preemption,
	// if that limits the room. quotaResource is the resource with the least quota.
	quota         Number
	quotaResource string
}

// room returns the room for the i-th pod set after the pod sets before it.
func (e *evaluation) room(c *Candidate, i int, view ledger.View) podRoom {
	p, metrics := e.facts.PodSets[i], c.Shapes[i]
	fit := math.Floor(metrics.Fit.Value)
	before := e.facts.PodSets[:i]
	fit -= float64(ledger.SlotsTaken(before, p, 0))
	r := podRoom{pods: float64(p.Pods), fit: fit, free: fit - float64(view.Slots(c.Name, c.SampledAt, e.facts.UID, p, e.spareDevices(&metrics, p)))}
	if metrics.RequestFit.Known {
		// Nobody knows on which nodes the pods in flight start. They leave this much if it does not matter.
		byRequests := math.Floor(metrics.RequestFit.Value) - float64(p.Requests.SlotsTaken(ledger.Requests(before, p)))
		r.fit = min(r.fit, byRequests)
		r.free = min(r.free, byRequests-float64(p.Requests.SlotsTaken(view.Requests(c.Name, c.SampledAt, e.facts.UID, p))))
	}
	r.onNodes = r.free
	if e.facts.Preempts {
		return e.roomByPreemption(r, c, i, view)
	}
	taken := ledger.QuotaOf(before, p)
	if allowed, resource := metrics.podsWithQuota(p, taken); allowed < fit {
		r.fit = max(allowed, 0)
		r.quota, r.quotaResource = Known(r.fit), resource
	}
	allowed, _ := metrics.podsWithQuota(p, taken.Plus(e.promisedQuota(e.drawsOnCohort(c), c, p, view)))
	r.free = min(r.free, allowed)
	// Kueue admits as many pods as its quota permits: samples may show promised quota already, and returned quota not yet.
	atMost, _ := metrics.podsWithQuota(p, taken.Minus(view.ReturnedQuota(e.drawsOnCohort(c), c.Name, sampleTimes(c), p)))
	r.pods = partialPods(p, atMost)
	return r
}

// spareDevices returns the number of free devices on nodes that have too few of them for a pod.
func (e *evaluation) spareDevices(metrics *ShapeMetrics, p shape.PodSet) int64 {
	if !e.rules.SpareKnown || !metrics.Headroom.Known {
		return 0
	}
	// By devices alone, no fewer pods fit than in all: fewer are from older samples.
	byDevices := math.Floor(max(metrics.DeviceFit.Value, metrics.Fit.Value))
	return int64(max(metrics.Headroom.Value-byDevices*float64(p.DevicesPerPod), 0))
}

// partialPods returns how many pods Kueue on the worker admits if its quota suffices for allowed
// pods: all of them, or as many as the quota permits if these are enough for a partial admission.
func partialPods(p shape.PodSet, allowed float64) float64 {
	if p.MinPods > 0 && allowed >= float64(p.MinPods) {
		return min(float64(p.Pods), allowed)
	}
	return float64(p.Pods)
}

// queue returns the workload's queue on the hub.
func (e *evaluation) queue() ledger.Queue { return ledger.QueueOf(&e.facts) }

// drawsOnQueue reports for queues of the hub whether their workloads draw on the workload's ClusterQueue on a worker.
func (e *evaluation) drawsOnQueue(c *Candidate) func(ledger.Queue) bool {
	own := c.ClusterQueue(e.queue())
	return func(q ledger.Queue) bool { return c.ClusterQueue(q) == own }
}

// drawsOnCohort reports for queues of the hub whether reservations of their workloads on a worker may reduce what the
// workload's ClusterQueue can reserve there: those of this queue, and of the other queues of the cohort on the hub.
func (e *evaluation) drawsOnCohort(c *Candidate) func(ledger.Queue) bool {
	drawsOnQueue := e.drawsOnQueue(c)
	return func(q ledger.Queue) bool { return drawsOnQueue(q) || slices.Contains(e.rules.CohortQueues, q.Cluster) }
}

// promisedQuota returns the quota of queues on the cluster that other workloads use and that its
// samples still show as unreserved.
func (e *evaluation) promisedQuota(includes func(ledger.Queue) bool, c *Candidate, p shape.PodSet, view ledger.View) ledger.Quota {
	return view.QuotaOf(includes, c.Name, sampleTimes(c), e.facts.UID, p)
}

func sampleTimes(c *Candidate) ledger.SampleTimes {
	return ledger.SampleTimes{Devices: c.SampledAt, Quota: c.QuotaSampledAt}
}

// isQuotaFailing reports whether the quota query has no valid result and the decision has
// to wait for one.
func (e *evaluation) isQuotaFailing(c *Candidate) bool {
	return !e.rules.PreemptsUncounted && e.rules.OnStale != v1alpha1.StaleOpen &&
		slices.ContainsFunc(c.Shapes, func(m ShapeMetrics) bool { return m.QuotaFailed })
}

// addDevices sets the numbers that rank the cluster, in devices of the largest pod set.
func (e *evaluation) addDevices(v Verdict, c *Candidate, view ledger.View) Verdict {
	main, metrics := e.facts.PodSets[0], c.Shapes[0]
	headroom := metrics.Headroom.Value
	if !metrics.Headroom.Known {
		headroom = metrics.Fit.Value * float64(main.DevicesPerPod)
	}
	if metrics.Quota.Known && !e.facts.Preempts {
		headroom = min(headroom, max(metrics.Quota.Value, 0))
	}
	v.Promised = view.Devices(c.Name, c.SampledAt, e.facts.UID, main)
	if v.Quota.Known { // samples may show the devices of a workload before they show its quota
		v.Promised = max(v.Promised, e.promisedQuota(e.drawsOnCohort(c), c, main, view).Devices)
	}
	v.Unstarted = view.Unstarted(c.Name, c.SampledAt, main)
	v.Net = headroom - float64(v.Promised+v.Unstarted) + float64(view.Credited(c.Name, c.SampledAt, main))
	v.Capacity = metrics.Capacity.Value
	return v
}

// deviceName returns the pod set's device model, or its resource if it accepts any model.
func deviceName(p shape.PodSet) string {
	if p.Model != "" {
		return p.Model
	}
	return p.Resource
}
