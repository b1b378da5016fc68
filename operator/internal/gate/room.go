package gate

import (
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// evaluateRoom places the workload's pod sets on the cluster, the largest pods first. Each
// pod set reduces the room of the following ones.
func (e *evaluation) evaluateRoom(v Verdict, c *Candidate, view ledger.View) Verdict {
	for i, p := range e.facts.PodSets {
		if i >= len(c.Shapes) || !c.Shapes[i].Fit.Known {
			return v.reject(BrokenRule{RejectNoModel, deviceName(p)})
		}
		if c.Shapes[i].QueueMissing {
			return v.reject(BrokenRule{RejectNoQueue, p.Resource + " in ClusterQueue " + e.facts.ClusterQueue})
		}
		fit, quota := e.fit(c, i)
		free := fit - float64(view.Slots(c.Name, c.SampledAt, e.facts.UID, p))
		tooSmall := free < float64(p.Pods) && v.Rejection == RejectNone
		if i == 0 || tooSmall {
			v.Fit, v.Room, v.Largest, v.Quota = Known(max(fit, 0)), Known(max(free, 0)), c.Shapes[i].Largest, quota
		}
		if tooSmall {
			v = v.reject(BrokenRule{RejectNoRoom, p.Name})
		}
		v.QuotaUnknown = v.QuotaUnknown || e.facts.Remote && !e.facts.Preempts && !c.Shapes[i].Quota.Known
	}
	if v.Rejection == RejectNone && e.isQuotaFailing(c) {
		v = v.reject(BrokenRule{RejectQuotaFailing, ""})
	}
	return e.addDevices(v, c, view)
}

// fit returns how many pods of the i-th pod set fit on the cluster's nodes, after the pod
// sets before it. If the worker's quota allows fewer pods than the nodes, quota is known and
// fit is limited to it.
func (e *evaluation) fit(c *Candidate, i int) (fit float64, quota Number) {
	p, metrics := e.facts.PodSets[i], c.Shapes[i]
	fit = math.Floor(metrics.Fit.Value)
	if metrics.Quota.Known && !e.facts.Preempts {
		if allowed := math.Floor(metrics.Quota.Value / float64(p.DevicesPerPod)); allowed < fit {
			fit = max(allowed, 0)
			quota = Known(fit)
		}
	}
	for _, before := range e.facts.PodSets[:i] {
		fit -= float64(ledger.SlotsTaken(before, p))
	}
	return fit, quota
}

// isQuotaFailing reports whether the quota query has no valid result and the decision has
// to wait for one.
func (e *evaluation) isQuotaFailing(c *Candidate) bool {
	return !e.facts.Preempts && e.rules.OnStale != v1alpha1.StaleOpen &&
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
	v.Net = headroom - metrics.Queued.Value - float64(v.Promised) + float64(view.Credited(c.Name, c.SampledAt, main))
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
