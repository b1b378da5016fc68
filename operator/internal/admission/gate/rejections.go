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
	// RejectNone applies if the cluster can take the workload.
	RejectNone Rejection = ""
	// RejectDisconnected applies if Kueue is not connected to the cluster.
	RejectDisconnected Rejection = "Disconnected"
	// RejectNotMember applies if the MultiKueueConfig does not contain the cluster, and the gate can't add it.
	RejectNotMember Rejection = "NotMember"
	// RejectNotPermitted applies if the workload's annotation does not permit the cluster.
	RejectNotPermitted Rejection = "NotPermitted"
	// RejectPins applies if the pods may not run on the nodes that stand for the cluster.
	RejectPins Rejection = "NodeSelector"
	// RejectJobElsewhere applies if the other components of the workload's job are on another cluster.
	RejectJobElsewhere Rejection = "JobElsewhere"
	// RejectUndecided applies if the Placement has not decided the cluster, which a job needs all the same.
	RejectUndecided Rejection = "NotDecided"
	// RejectAvoided applies if the workload avoids the cluster for a time: a ReclaimPolicy moved it away from there, or it
	// did not start there and another cluster could hold it.
	RejectAvoided Rejection = "Avoided"
	// RejectScore applies if a required score is below its minimum.
	RejectScore Rejection = "BelowMinimum"
	// RejectNoScore applies if a required score is missing or expired.
	RejectNoScore Rejection = "NoScore"
	// RejectRequirement applies if a requirement of scope Cluster is not met.
	RejectRequirement Rejection = "RequirementUnmet"
	// RejectRequirementAbsent applies if a requirement of scope Cluster has no series for the cluster, which
	// does not meet it.
	RejectRequirementAbsent Rejection = "RequirementAbsent"
	// RejectRequirementFailing applies if a requirement of scope Cluster has had no valid result
	// for too long.
	RejectRequirementFailing Rejection = "RequirementFailing"
	// RejectPrerequisite applies if the worker lacks an object that the workload refers to.
	RejectPrerequisite Rejection = "MissingPrerequisite"
	// RejectUnknown applies if the cluster reports no sample time.
	RejectUnknown Rejection = "Unknown"
	// RejectStale applies if the cluster's samples are too old.
	RejectStale Rejection = "StaleSamples"
	// RejectNoModel applies if the cluster reports no devices of the requested model.
	RejectNoModel Rejection = "NoSuchDevices"
	// RejectNoFit applies if the cluster has devices of the requested model, but the query fit has no
	// series for it: no node with such devices is trusted, or the gate's own query lacks series.
	RejectNoFit Rejection = "NoFitSeries"
	// RejectNoQueue applies if the worker's ClusterQueue for the workload has no quota for the resource, or does not exist.
	RejectNoQueue Rejection = "NoQuota"
	// RejectNoRoom applies if too few pods fit, or the worker's queue has too little quota.
	RejectNoRoom Rejection = "NoRoom"
	// RejectHeld applies if the cluster has room but is held for a workload that ranks before.
	RejectHeld Rejection = "Held"
	// RejectDoubted applies if the cluster has room but does not start what it admits, and another one could hold the
	// workload.
	RejectDoubted Rejection = "Doubted"
	// RejectOutside applies if the cluster could take the workload, but the MultiKueueConfig does
	// not contain it.
	RejectOutside Rejection = "NotConfigured"
	// RejectQuotaFailing applies if the cluster has room, but the quota query has no valid
	// result.
	RejectQuotaFailing Rejection = "QuotaFailing"
)

// rejectionRow states everything that depends on a rejection.
type rejectionRow struct {
	rejection Rejection
	// rule detects the rejection. A rule for several rejections stands in the first of their
	// rows. Rejections by evaluateRoom have no rule.
	rule rule
	// reason of a Pending decision in which this rejection is the most helpful one.
	reason string
	// next is the event that can end a rejection with ReasonRuledOut. The other reasons have one for all their rows.
	next string
	// message states the rejection, as a predicate that follows the cluster's name.
	message func(v Verdict) string
	// stableMessage replaces message in an admission check if message changes with time
	// alone. Each waiting workload would otherwise write its check at every wake-up.
	stableMessage func(v Verdict) string
	// measured is true if the cluster's metrics prove a lack of room. Only if all clusters
	// are rejected by such rows, a workload may be given up.
	measured bool
	// mayHoldCopy is true if nothing except a lack of room excludes the cluster. A copy of the
	// workload's last attempt may be what occupies this room.
	mayHoldCopy bool
	// full is true if the cluster is suitable but has too little room now. Such a cluster
	// keeps its place in the tiers, and may be reported as the nearest match.
	full bool
	// roomUnknown is true if the cluster may have room, but its metrics don't say.
	roomUnknown bool
	// dependsOnSource is true if a failing metrics source may be the cause: samples and
	// scores come from the same source.
	dependsOnSource bool
}

// rejections is the table of rules and rejections. Each decision applies the rules in the
// order of the rows and stops at the first broken rule.
var rejections = []rejectionRow{
	{rejection: RejectNone, reason: ReasonPlaceable, message: eligibleMessage, mayHoldCopy: true},

	// isUsable detects the first ones.
	{rejection: RejectDisconnected, rule: isUsable, reason: ReasonRuledOut, next: "Kueue connects to a cluster", message: detailMessage("%s")},
	{rejection: RejectNotMember, reason: ReasonRuledOut, next: "the MultiKueueConfig contains another cluster", message: detailMessage("is not in MultiKueueConfig %s")},
	{rejection: RejectNotPermitted, reason: ReasonRuledOut, next: "the annotation of the job permits another cluster", message: detailMessage("is not in annotation %s")},
	{rejection: RejectPins, reason: ReasonRuledOut, next: "a cluster matches the node selector", message: detailMessage("does not match the node selector %s")},
	{rejection: RejectJobElsewhere, reason: ReasonRuledOut, next: "the cluster of the other components can take it", message: detailMessage("does not run the job's other components, which are on %s")},
	{rejection: RejectUndecided, reason: ReasonRuledOut, next: "the Placement decides the cluster of the other components again", message: detailMessage("runs the job's other components, but is not decided by Placement %s")},
	{rejection: RejectAvoided, reason: ReasonRuledOut, next: "the time ends for which it avoids a cluster", message: detailMessage("%s")},

	// hasRequiredScores detects both.
	{rejection: RejectScore, rule: hasRequiredScores, reason: ReasonRuledOut, next: "a score reaches the minimum", dependsOnSource: true,
		message: detailMessage("has a score %s below the minimum")},
	{rejection: RejectNoScore, reason: ReasonRuledOut, next: "a score is published", dependsOnSource: true, message: detailMessage("has no valid score %s")},

	// meetsRequirements detects all three.
	{rejection: RejectRequirement, rule: meetsRequirements, reason: ReasonRuledOut, next: "a requirement is met", message: detailMessage("does not meet requirement %s")},
	{rejection: RejectRequirementAbsent, reason: ReasonRuledOut, next: "a requirement has a series", message: detailMessage("has no series for requirement %s")},
	{rejection: RejectRequirementFailing, reason: ReasonNoMetrics, message: detailMessage("has no result for requirement %s")},

	{rejection: RejectPrerequisite, rule: hasPrerequisites, reason: ReasonRuledOut, next: "the missing object appears on a cluster", message: detailMessage("does not have %s")},

	// hasFreshSamples detects both.
	{rejection: RejectUnknown, rule: hasFreshSamples, reason: ReasonStale, dependsOnSource: true, roomUnknown: true,
		message: fixedMessage("reports no samples")},
	{rejection: RejectStale, reason: ReasonStale, dependsOnSource: true, roomUnknown: true,
		message:       func(v Verdict) string { return fmt.Sprintf("has samples %s old", time.Duration(v.Age)*time.Second) },
		stableMessage: detailMessage("has samples older than %s")},

	// evaluateRoom detects the rest, after all rules.
	{rejection: RejectNoModel, reason: ReasonNoRoom, message: detailMessage("has no free %s"), measured: true, mayHoldCopy: true},
	{rejection: RejectNoFit, reason: ReasonNoMetrics, message: noFitMessage, mayHoldCopy: true},
	{rejection: RejectNoQueue, reason: ReasonRuledOut, next: "a queue gets quota for the resource", message: detailMessage("has no quota for %s"), measured: true},
	{rejection: RejectNoRoom, reason: ReasonNoRoom, message: roomMessage, measured: true, mayHoldCopy: true, full: true},
	{rejection: RejectHeld, reason: ReasonHeld, message: detailMessage("is held for %s"), mayHoldCopy: true, full: true},
	{rejection: RejectDoubted, reason: ReasonDoubted, message: detailMessage("is doubted: %s"), mayHoldCopy: true, full: true},
	{rejection: RejectOutside, reason: ReasonJoining, message: fixedMessage("has room and is not in the MultiKueueConfig yet")},
	{rejection: RejectQuotaFailing, reason: ReasonNoMetrics, message: fixedMessage("has no result for the quota of its queue"), roomUnknown: true},
}

// pendingReasons of decisions without an eligible cluster, the most helpful first.
var pendingReasons = []string{ReasonJoining, ReasonNoRoom, ReasonHeld, ReasonDoubted, ReasonNoMetrics, ReasonStale, ReasonRuledOut}

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

// IsRoomUnknown reports whether only a lack of metrics excludes the cluster.
func (r Rejection) IsRoomUnknown() bool { return r.row().roomUnknown }

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
	if slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Rejection == RejectNoFit }) {
		// The cluster with such devices decides whether the workload waits for room or for metrics.
		verdicts = slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool { return v.Rejection == RejectNoModel })
	}
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

// fixedMessage returns a message without details.
func fixedMessage(text string) func(Verdict) string {
	return func(Verdict) string { return text }
}

// detailMessage returns a message that contains the verdict's detail in place of %s.
func detailMessage(format string) func(Verdict) string {
	return func(v Verdict) string { return fmt.Sprintf(format, v.Detail) }
}

func eligibleMessage(v Verdict) string {
	text := "is eligible"
	if v.QuotaUnknown {
		text += ", its quota is unknown"
	}
	if v.Excess > 0 {
		text += fmt.Sprintf(", an exporter reports %s that kube-state-metrics does not", quantity(int64(v.Excess), "device"))
	}
	if len(v.Unmeasured) > 0 {
		text += ", " + v.unmeasuredNote()
	}
	if len(v.IgnoredRequirements) > 0 {
		text += ", " + noResult(v.IgnoredRequirements) + " and onStale is Open"
	}
	if len(v.UnknownPrerequisites) > 0 {
		text += ", " + unknownPrerequisites(v.UnknownPrerequisites)
	}
	return text
}

func noFitMessage(v Verdict) string {
	return fmt.Sprintf("has %.0f %s, and no series of the gate's query fit", v.Capacity, v.Detail)
}

func roomMessage(v Verdict) string {
	if v.Quota.Known {
		return fmt.Sprintf("has %s for %s%s, with %s promised", v.quotaName(), quantity(int64(v.Quota.Value), "such pod"), v.quotaNote(), quantity(v.Promised, "device"))
	}
	text := "has room for " + quantity(int64(v.Room.Value), "such pod") + v.byDevicesNote()
	if v.Promised > 0 {
		text += fmt.Sprintf(", with %s promised", quantity(v.Promised, "device"))
	}
	return text
}

// quotaName names the quota that limits the room, unless it is that of the devices.
func (v Verdict) quotaName() string {
	if v.QuotaResource == "cpu" || v.QuotaResource == "memory" {
		return "quota of " + v.QuotaResource
	}
	return "quota"
}

// quotaNote completes the number of pods with quota.
func (v Verdict) quotaNote() string {
	if v.LacksQuota {
		return ", preemption included"
	}
	return ""
}

// noResult states that requirements have no result.
func noResult(requirements []string) string {
	if len(requirements) == 1 {
		return "requirement " + requirements[0] + " has no result"
	}
	return "requirements " + strings.Join(requirements, ", ") + " have no result"
}
