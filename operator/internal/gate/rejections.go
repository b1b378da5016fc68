package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rejection is the reason why a candidate cannot take the workload.
type Rejection string

// Rejections. The table below has one row for each.
const (
	// RejectNone means that the cluster can take the workload.
	RejectNone Rejection = ""
	// RejectUnusable means that no workload can be sent to the cluster.
	RejectUnusable Rejection = "Unusable"
	// RejectScore means that a required score is below its minimum.
	RejectScore Rejection = "BelowMinimum"
	// RejectNoScore means that a required score is missing or expired.
	RejectNoScore Rejection = "NoScore"
	// RejectCondition means that a condition of scope Cluster is not met.
	RejectCondition Rejection = "ConditionUnmet"
	// RejectConditionFailing means that a condition of scope Cluster has had no valid result
	// for too long.
	RejectConditionFailing Rejection = "ConditionFailing"
	// RejectUnknown means that the cluster reports no sample time.
	RejectUnknown Rejection = "Unknown"
	// RejectStale means that the cluster's samples are too old.
	RejectStale Rejection = "StaleSamples"
	// RejectNoModel means that the cluster reports no devices of the requested model.
	RejectNoModel Rejection = "NoSuchDevices"
	// RejectNoQueue means that the worker has no queue of the workload's ClusterQueue's name
	// with quota for the resource.
	RejectNoQueue Rejection = "NoQuota"
	// RejectNoRoom means that too few pods fit, or the worker's queue has too little quota.
	RejectNoRoom Rejection = "NoRoom"
	// RejectQuotaFailing means that the cluster has room, but the quota query has no valid
	// result.
	RejectQuotaFailing Rejection = "QuotaFailing"
)

// rejectionRow states everything that depends on a rejection.
type rejectionRow struct {
	rejection Rejection
	// rule detects the rejection. A rule that detects several rejections stands in the first
	// row of these. Rejections that evaluateRoom detects have none.
	rule rule
	// reason of a Pending decision in which this rejection is the most helpful one.
	reason string
	// message states the rejection, as a predicate that follows the cluster's name.
	message func(v Verdict) string
	// stableMessage replaces message in an admission check if message changes with time
	// alone. Each waiting workload would otherwise write its check in every round.
	stableMessage func(v Verdict) string
	// measured means that the cluster's metrics prove a lack of room. Only if all clusters
	// are rejected by such rows, a workload may be given up.
	measured bool
	// mayHoldCopy means that nothing except a lack of room excludes the cluster. A copy of the
	// workload's last attempt may be what occupies this room.
	mayHoldCopy bool
	// full means that the cluster is suitable but has too little room now. Such a cluster
	// keeps its place in the tiers, and may be reported as the nearest match.
	full bool
	// dependsOnSource means that a failing metrics source may be the cause: samples and
	// scores come from the same source.
	dependsOnSource bool
}

// rejections is the table of rules and rejections. A decision applies the rules in the
// order of the rows and stops at the first that a cluster breaks.
var rejections = []rejectionRow{
	{rejection: RejectNone, reason: ReasonPlaceable, message: eligibleMessage, mayHoldCopy: true},
	{rejection: RejectUnusable, rule: isUsable, reason: ReasonRuledOut, message: detailMessage("%s")},

	// hasRequiredScores detects both.
	{rejection: RejectScore, rule: hasRequiredScores, reason: ReasonRuledOut, dependsOnSource: true,
		message: detailMessage("has a score %s below the minimum")},
	{rejection: RejectNoScore, reason: ReasonRuledOut, dependsOnSource: true, message: detailMessage("has no valid score %s")},

	// meetsConditions detects both.
	{rejection: RejectCondition, rule: meetsConditions, reason: ReasonRuledOut, message: detailMessage("does not meet condition %s")},
	{rejection: RejectConditionFailing, reason: ReasonNoMetrics, message: detailMessage("has no result for condition %s")},

	// hasFreshSamples detects both.
	{rejection: RejectUnknown, rule: hasFreshSamples, reason: ReasonStale, dependsOnSource: true,
		message: func(Verdict) string { return "reports no samples" }},
	{rejection: RejectStale, reason: ReasonStale, dependsOnSource: true,
		message:       func(v Verdict) string { return fmt.Sprintf("has samples %s old", time.Duration(v.Age)*time.Second) },
		stableMessage: detailMessage("has samples older than %s")},

	// evaluateRoom detects the rest, after all rules.
	{rejection: RejectNoModel, reason: ReasonNoRoom, message: detailMessage("has no free %s"), measured: true, mayHoldCopy: true},
	{rejection: RejectNoQueue, reason: ReasonRuledOut, message: detailMessage("has no quota for %s"), measured: true},
	{rejection: RejectNoRoom, reason: ReasonNoRoom, message: roomMessage, measured: true, mayHoldCopy: true, full: true},
	{rejection: RejectQuotaFailing, reason: ReasonNoMetrics, message: func(Verdict) string { return "has no result for the quota of its queue" }},
}

// pendingReasons of decisions without an eligible cluster, the most helpful first.
var pendingReasons = []string{ReasonNoRoom, ReasonNoMetrics, ReasonStale, ReasonRuledOut}

// row returns the rejection's row. A rejection that is not in the table has an empty row.
func (r Rejection) row() rejectionRow {
	if i := slices.IndexFunc(rejections, func(row rejectionRow) bool { return row.rejection == r }); i >= 0 {
		return rejections[i]
	}
	return rejectionRow{}
}

// MayHoldCopy reports whether the cluster is worth nominating if it may still hold a copy
// of the workload's last attempt: nothing, or only a lack of room, speaks against the
// cluster, and the copy itself may occupy that room.
func (r Rejection) MayHoldCopy() bool { return r.row().mayHoldCopy }

// countsForTier reports whether a cluster takes part in forming the tiers. Full clusters
// do, so that a distant cluster does not move up only because the best ones are full.
func (r Rejection) countsForTier() bool { return r == RejectNone || r.row().full }

// noRoomAnywhere reports whether complete metrics prove that no candidate has room.
func noRoomAnywhere(verdicts []Verdict, fleet Fleet) bool {
	return fleet.Problem == "" && !fleet.Incomplete &&
		!slices.ContainsFunc(verdicts, func(v Verdict) bool { return !v.Rejection.row().measured })
}

// pendingReason returns the reason that helps most, if all candidates are rejected.
func pendingReason(verdicts []Verdict, fleet Fleet) string {
	for _, reason := range pendingReasons {
		if slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Rejection.pendingReason(fleet) == reason }) {
			return reason
		}
	}
	return ReasonRuledOut
}

func (r Rejection) pendingReason(fleet Fleet) string {
	row := r.row()
	if row.dependsOnSource && fleet.Problem != "" {
		return ReasonNoMetrics
	}
	return row.reason
}

// detailMessage returns a message that contains the verdict's detail.
func detailMessage(format string) func(Verdict) string {
	return func(v Verdict) string { return fmt.Sprintf(format, v.Detail) }
}

func eligibleMessage(v Verdict) string {
	text := "is eligible"
	if v.QuotaUnknown {
		text += ", its quota is unknown"
	}
	if len(v.IgnoredConditions) > 0 {
		text += ", " + noResult(v.IgnoredConditions) + " and onStale is Open"
	}
	return text
}

func roomMessage(v Verdict) string {
	if v.Quota.Known {
		return fmt.Sprintf("has quota for %s, with %s promised", quantity(int64(v.Quota.Value), "such pod"), quantity(v.Promised, "device"))
	}
	text := "has room for " + quantity(int64(v.Room.Value), "such pod")
	if v.Promised > 0 {
		text += fmt.Sprintf(", with %s promised", quantity(v.Promised, "device"))
	}
	return text
}

// noResult states that conditions have no result.
func noResult(conditions []string) string {
	if len(conditions) == 1 {
		return "condition " + conditions[0] + " has no result"
	}
	return "conditions " + strings.Join(conditions, ", ") + " have no result"
}
