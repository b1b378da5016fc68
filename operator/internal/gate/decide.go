package gate

import (
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// State of a check, in the words of Kueue.
type State string

// The states that a gate sets.
const (
	Pending  State = "Pending"
	Ready    State = "Ready"
	Retry    State = "Retry"
	Rejected State = "Rejected"
)

// Reasons of a decision.
const (
	ReasonPlaceable           = "Placeable"
	ReasonNoDecisions         = "NoDecisions"
	ReasonNoRoom              = "NoRoom"
	ReasonRuledOut            = "RuledOut"
	ReasonStale               = "StaleSamples"
	ReasonNoMetrics           = "NoMetrics"
	ReasonFleetConditionUnmet = "FleetConditionUnmet"
	ReasonOrphanedCopy        = "CopyLeft"
	ReasonYield               = "Yield"
	ReasonGaveUp              = "GaveUp"
	ReasonGateNotReady        = "GateNotReady"
)

// Decision about one workload.
type Decision struct {
	State   State  `json:"state"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Doubtful: it might be another, had the metrics source answered all questions.
	Incomplete bool `json:"doubtful,omitempty"`
	// Full: every candidate was measured and has no room.
	NoRoomAnywhere bool `json:"full,omitempty"`
	// Order in which to nominate: the choice first, then the rest that have room.
	Order []string `json:"order,omitempty"`
	// Verdicts on each candidate, in the candidates' order.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// Out says what ruled a candidate out.
type Rejection string

// What may rule a candidate out.
const (
	RejectNone      Rejection = ""
	RejectUnusable  Rejection = "Unusable"
	RejectScore     Rejection = "BelowMinimum"
	RejectNoScore   Rejection = "NoScore"
	RejectCondition Rejection = "ConditionUnmet"
	// OutUnanswered: nobody answered a condition for so long that it is not known.
	RejectConditionFailing Rejection = "ConditionUnanswered"
	RejectStale            Rejection = "StaleSamples"
	RejectUnknown          Rejection = "Unknown"
	RejectNoModel          Rejection = "NoSuchDevices"
	RejectNoRoom           Rejection = "NoRoom"
	RejectNoQueue          Rejection = "NoQuota"
	// OutQuotaUnanswered: it has room, but nobody answers what its queue has quota for.
	RejectQuotaFailing Rejection = "QuotaUnanswered"
)

// Verdict on one candidate.
type Verdict struct {
	Cluster   string    `json:"cluster"`
	Rejection Rejection `json:"out,omitempty"`
	// Detail completes Out: a condition's or score's name, how old samples may be,
	// or why it is unusable.
	Detail string `json:"detail,omitempty"`
	// Room: pods of the workload's largest shape, ledger subtracted.
	Room Number `json:"room"`
	// Fit: the same before the ledger was subtracted.
	Fit Number `json:"fit"`
	// Largest: free devices on the best node.
	Largest Number `json:"largest"`
	// Quota: pods that the worker's queue has quota for, where that is less than
	// its nodes have room for.
	Quota Number `json:"quota,omitzero"`
	// QuotaUnknown: the worker's Kueue does not tell what its queue may reserve.
	QuotaUnknown bool `json:"quotaUnknown,omitempty"`
	// Score preferred, the mean of all preferred ones.
	Score Number `json:"score"`
	// Net devices: headroom − queued − ledger + credits.
	Net      float64 `json:"net"`
	Capacity float64 `json:"capacity"`
	// Promised devices to workloads on their way.
	Promised int64 `json:"promised"`
	// Age of the oldest sample in seconds; negative = unknown.
	Age float64 `json:"ageSeconds"`
	// Blind: taken without metrics, as onStale=Open allows.
	WithoutMetrics bool `json:"blind,omitempty"`
	// Forgiven are the conditions that nobody answered, as onStale=Open allows.
	IgnoredConditions []string `json:"forgiven,omitempty"`
}

// Decide which clusters can take the workload now. attempt seeds the draw
// together with the workload's uid.
func Decide(f shape.Facts, candidates []Candidate, fleet Fleet, view ledger.View, rules Rules, attempt int, now time.Time) Decision {
	d := Decision{State: Pending, Verdicts: make([]Verdict, len(candidates))}
	rules = rules.failClosedWhileRecent(fleet, now)
	open, fleetTerms := nothingKnown(candidates, rules, now), groupByState(fleet.Conditions, rules, now)
	for i := range candidates {
		d.Verdicts[i] = evaluate(f, &candidates[i], view, rules, open, now)
	}
	switch {
	case len(candidates) == 0:
		d.Reason = ReasonNoDecisions
	case len(fleetTerms[conditionUnmet]) > 0:
		d.Reason = ReasonFleetConditionUnmet
	case len(fleetTerms[conditionFailing]) > 0:
		d.Reason = ReasonNoMetrics
	default:
		d.Order = rank(f, d.Verdicts, rules, attempt)
		if len(d.Order) > 0 {
			d.State, d.Reason = Ready, ReasonPlaceable
		} else {
			d.Reason, d.NoRoomAnywhere = pendingReason(d.Verdicts, fleet), noRoomAnywhere(d.Verdicts, fleet)
		}
	}
	d.Incomplete = fleet.Problem != ""
	d.Message = decisionMessage(f, d, fleet, fleetTerms, rules)
	return d
}

// blind says that onStale is Open and no usable candidate has a sample that is
// still known.
func nothingKnown(candidates []Candidate, rules Rules, now time.Time) bool {
	if rules.OnStale != v1alpha1.StaleOpen {
		return false
	}
	for i := range candidates {
		c := &candidates[i]
		if c.Unusable == "" && !c.SampledAt.IsZero() && now.Sub(c.SampledAt) <= rules.UnknownAfter {
			return false
		}
	}
	return true
}

// judge one candidate: the first rule that it breaks.
func evaluate(f shape.Facts, c *Candidate, view ledger.View, rules Rules, open bool, now time.Time) Verdict {
	v := Verdict{Cluster: c.Name, Age: -1, Score: Preferred(c.Scores, rules.Policies, now), IgnoredConditions: groupByState(c.Conditions, rules, now)[conditionIgnored]}
	if !c.SampledAt.IsZero() {
		v.Age = now.Sub(c.SampledAt).Seconds()
	}
	brokenRules(f, c, rules, open, now, func(out Rejection, detail string) bool {
		v = v.reject(out, detail)
		return false
	})
	switch {
	case v.Rejection != RejectNone || len(f.PodSets) == 0:
		return v
	case open:
		v.WithoutMetrics = true
		return v
	}
	return evaluateRoom(v, f, c, view, rules)
}

// broken yields the rules other than room that a candidate breaks, in the order
// in which they count.
func brokenRules(f shape.Facts, c *Candidate, rules Rules, open bool, now time.Time, yield func(Rejection, string) bool) {
	if c.Unusable != "" && !yield(RejectUnusable, c.Unusable) {
		return
	}
	for _, p := range rules.Policies {
		if out, key := requiredScore(c, p, open, now); out != RejectNone && !yield(out, key) {
			return
		}
	}
	for _, condition := range c.Conditions {
		if out := condition.rejection(rules, open, now); out != RejectNone && !yield(out, condition.Name) {
			return
		}
	}
	switch {
	case open || len(f.PodSets) == 0:
	case c.SampledAt.IsZero():
		yield(RejectUnknown, "")
	case now.Sub(c.SampledAt) > rules.MaxSampleAge:
		yield(RejectStale, rules.MaxSampleAge.String())
	}
}

func (v Verdict) reject(out Rejection, detail string) Verdict {
	v.Rejection, v.Detail = out, detail
	return v
}

// required says whether a policy's score keeps the candidate out. open forgives
// one that is absent or expired.
func requiredScore(c *Candidate, p v1alpha1.GatePolicy, open bool, now time.Time) (Rejection, string) {
	if p.Use != v1alpha1.UseRequire {
		return RejectNone, ""
	}
	key := ScoreKey(p.Policy, p.Score)
	score, ok := liveScore(c.Scores, key, now)
	minimum := int32(DefaultMinimum)
	if p.Minimum != nil {
		minimum = *p.Minimum
	}
	switch {
	case !ok && !open:
		return RejectNoScore, key
	case ok && score < minimum:
		return RejectScore, key
	}
	return RejectNone, ""
}

func liveScore(scores map[string]Score, key string, now time.Time) (int32, bool) {
	s, ok := scores[key]
	if !ok || !s.ValidUntil.IsZero() && now.After(s.ValidUntil) {
		return 0, false
	}
	return s.Value, true
}

// Preferred is the mean of the preferred scores; unknown if one is missing or has
// expired, and 0 where none is preferred.
func Preferred(scores map[string]Score, policies []v1alpha1.GatePolicy, now time.Time) Number {
	sum, n := 0.0, 0
	for _, p := range policies {
		if p.Use == v1alpha1.UseRequire {
			continue
		}
		score, ok := liveScore(scores, ScoreKey(p.Policy, p.Score), now)
		if !ok {
			return Number{}
		}
		sum += float64(score)
		n++
	}
	if n == 0 {
		return Known(0)
	}
	return Known(sum / float64(n))
}

// room places the pod sets, the largest first, each taking from the next.
func evaluateRoom(v Verdict, f shape.Facts, c *Candidate, view ledger.View, rules Rules) Verdict {
	main := f.PodSets[0]
	for i, p := range f.PodSets {
		if i >= len(c.Shapes) || !c.Shapes[i].Fit.Known {
			return v.reject(RejectNoModel, describe(p))
		}
		if c.Shapes[i].QueueMissing {
			return v.reject(RejectNoQueue, p.Resource+" in a ClusterQueue "+f.ClusterQueue)
		}
		fit, quota := math.Floor(c.Shapes[i].Fit.Value), Number{}
		switch allowed := math.Floor(c.Shapes[i].Quota.Value / float64(p.DevicesPerPod)); {
		case f.Preempts:
		case !c.Shapes[i].Quota.Known:
			v.QuotaUnknown = f.Remote
		case allowed < fit:
			fit, quota = max(allowed, 0), Known(max(allowed, 0))
		}
		for _, before := range f.PodSets[:i] {
			fit -= float64(ledger.SlotsTaken(before, p))
		}
		free := fit - float64(view.Slots(c.Name, c.SampledAt, f.UID, p))
		short := free < float64(p.Pods) && v.Rejection == RejectNone
		if i == 0 || short {
			v.Fit, v.Room, v.Largest, v.Quota = Known(max(fit, 0)), Known(max(free, 0)), c.Shapes[i].Largest, quota
		}
		if short {
			v = v.reject(RejectNoRoom, p.Name)
		}
	}
	if v.Rejection == RejectNone && quotaIsFailing(f, c, rules) {
		v = v.reject(RejectQuotaFailing, "")
	}
	answer := c.Shapes[0]
	v.Promised = view.Devices(c.Name, c.SampledAt, f.UID, main)
	headroom := answer.Headroom
	if !headroom.Known {
		headroom = Known(answer.Fit.Value * float64(main.DevicesPerPod))
	}
	if answer.Quota.Known && !f.Preempts {
		headroom.Value = min(headroom.Value, max(answer.Quota.Value, 0))
	}
	v.Net = headroom.Value - answer.Queued.Value - float64(v.Promised) + float64(view.Credited(c.Name, c.SampledAt, main))
	v.Capacity = answer.Capacity.Value
	return v
}

// awaitsQuota: nobody answers what the queue may still reserve, and onStale does not
// forgive that. Rules that are still patient forgive nothing.
func quotaIsFailing(f shape.Facts, c *Candidate, rules Rules) bool {
	return !f.Preempts && rules.OnStale != v1alpha1.StaleOpen && slices.ContainsFunc(c.Shapes, func(a ShapeMetrics) bool { return a.QuotaFailed })
}

// unplaceable picks the reason that helps most.
func pendingReason(verdicts []Verdict, fleet Fleet) string {
	has := func(outs ...Rejection) bool {
		return slices.ContainsFunc(verdicts, func(v Verdict) bool { return slices.Contains(outs, v.Rejection) })
	}
	switch {
	case has(RejectNoRoom, RejectNoModel):
		return ReasonNoRoom
	case has(RejectConditionFailing, RejectQuotaFailing) || fleet.Problem != "" && has(RejectUnknown, RejectStale, RejectScore, RejectNoScore):
		return ReasonNoMetrics // scores come from the same source
	case has(RejectStale, RejectUnknown):
		return ReasonStale
	}
	return ReasonRuledOut
}
