package gate

import (
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Verdict is the result for one candidate.
type Verdict struct {
	Cluster string `json:"cluster"`
	// Rejection is empty if the cluster can take the workload.
	Rejection Rejection `json:"rejection,omitempty"`
	// Detail completes the rejection's message: the name of a requirement, score, pod set or
	// device model, the largest accepted age of samples, or why the cluster is unusable.
	Detail string `json:"detail,omitempty"`
	// Room is the number of pods of the workload's largest shape that fit, minus the ledger.
	// If another pod set is the one that does not fit, Room, Fit, Largest and Quota refer to it.
	Room Number `json:"room"`
	// Fit is the number of pods that fit before the ledger is subtracted.
	Fit Number `json:"fit"`
	// DeviceFit is Fit by devices alone.
	DeviceFit Number `json:"deviceFit,omitzero"`
	// Taints are the keys of taints of nodes with such devices that the pods do not tolerate.
	Taints string `json:"taints,omitempty"`
	// Unmeasured is what the pods require of nodes and the cluster does not report.
	Unmeasured []string `json:"unmeasured,omitempty"`
	// Largest is the number of free devices on the best node.
	Largest Number `json:"largest"`
	// Quota is the number of pods for which the worker's queue has quota. It is known only if
	// it is smaller than the number of pods that fit on the nodes.
	Quota Number `json:"quota,omitzero"`
	// QuotaResource is the resource that limits Quota.
	QuotaResource string `json:"quotaResource,omitempty"`
	// PartialPods is the number of pods with which the worker's Kueue admits the copy, if its quota
	// suffices for a part of the pods only. 0 means all pods.
	PartialPods int64 `json:"partialPods,omitempty"`
	// Preempts is true if Room includes devices of workloads with a lower priority, which the
	// worker has to preempt.
	Preempts bool `json:"preempts,omitempty"`
	// Reclaims is true if these include borrowers in the cohort.
	Reclaims bool `json:"reclaims,omitempty"`
	// LacksQuota is true if the worker's queue has too little unreserved quota, so that Kueue there
	// admits the workload only if it can preempt others.
	LacksQuota bool `json:"lacksQuota,omitempty"`
	// Slow is true if workloads there have not started for longer than usual.
	Slow bool `json:"slow,omitempty"`
	// Excess is the number of devices that an exporter there reports and kube-state-metrics does not. They are not counted.
	Excess float64 `json:"excess,omitempty"`
	// QuotaUnknown is true if the worker's Kueue exports no quota for the queue.
	QuotaUnknown bool `json:"quotaUnknown,omitempty"`
	// Preference of the gate's query for the cluster.
	Preference Number `json:"preference,omitzero"`
	// Score is the mean of the preferred scores.
	Score Number `json:"score"`
	// Net is the number of devices in headroom − ledger − unstarted + credits.
	Net float64 `json:"net"`
	// Capacity is the number of devices, free or not.
	Capacity float64 `json:"capacity"`
	// Promised is the number of devices in the ledger for other workloads.
	Promised int64 `json:"promised"`
	// Unstarted is the number of devices of workloads that the cluster admitted and whose pods have not been ready. They
	// count against its rank, and not against its room: these pods may hold their devices already, or never get any.
	Unstarted int64 `json:"unstarted,omitempty"`
	// Age of the oldest sample in seconds. A negative age means unknown.
	Age float64 `json:"ageSeconds"`
	// WithoutMetrics is true if the cluster has no usable metrics and onStale is Open.
	WithoutMetrics bool `json:"withoutMetrics,omitempty"`
	// IgnoredRequirements have no result and are ignored because onStale is Open.
	IgnoredRequirements []string `json:"ignoredRequirements,omitempty"`
	// UnknownPrerequisites are objects of which no metric shows whether the cluster has them. They
	// exclude no cluster.
	UnknownPrerequisites []shape.Reference `json:"unknownPrerequisites,omitempty"`
}

// AdmittedPods returns with how many pods of p Kueue on the worker admits the workload, by the quota
// there. It returns false if the quota is not known, or does not suffice.
func (v Verdict) AdmittedPods(p shape.PodSet) (int64, bool) {
	switch {
	case v.PartialPods > 0:
		return v.PartialPods, true
	case v.Rejection != RejectNone || v.QuotaUnknown || v.WithoutMetrics:
		return 0, false
	}
	return p.Pods, true
}

// verdict evaluates the rules and then, if the candidate breaks none, its room.
func (e *evaluation) verdict(c *Candidate, view ledger.View) Verdict {
	v := Verdict{
		Cluster:             c.Name,
		Age:                 -1,
		Preference:          c.Preference,
		Excess:              c.Excess.Value,
		Score:               Preferred(c.Scores, e.rules.Scores, e.now),
		IgnoredRequirements: groupByState(c.Requirements, e.rules, e.now)[requirementIgnored],
	}
	_, v.UnknownPrerequisites = e.prerequisites(c)
	v.Unmeasured = e.unmeasured(c)
	v.Slow = view.IsSlow(c.Name, e.facts.Namespace, e.now)
	if !c.SampledAt.IsZero() {
		v.Age = e.now.Sub(c.SampledAt).Seconds()
	}
	if broken := e.brokenRules(c, true); len(broken) > 0 {
		return v.reject(broken[0])
	}
	switch {
	case len(e.facts.PodSets) == 0:
	case e.ignoreMissing:
		v.WithoutMetrics = true
	default:
		v = e.evaluateRoom(v, c, view)
	}
	if c.Outside && v.Rejection == RejectNone {
		v = v.reject(BrokenRule{RejectOutside, ""})
	}
	return v
}

func (v Verdict) reject(b BrokenRule) Verdict {
	v.Rejection, v.Detail = b.Rejection, b.Detail
	return v
}

// Why states the verdict as a predicate that follows the cluster's name.
func (v Verdict) Why() string {
	if message := v.Rejection.row().message; message != nil {
		return message(v)
	}
	return string(v.Rejection)
}

// stableWhy is Why without values that change with time alone.
func (v Verdict) stableWhy() string {
	if message := v.Rejection.row().stableMessage; message != nil {
		return message(v)
	}
	return v.Why()
}
