package gate

import (
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// full says that every candidate was measured, without doubt, and has no room. One
// that anything else rules out might have.
func noRoomAnywhere(verdicts []Verdict, fleet Fleet) bool {
	return fleet.Problem == "" && !fleet.Incomplete && !slices.ContainsFunc(verdicts, func(v Verdict) bool {
		return v.Rejection != RejectNoRoom && v.Rejection != RejectNoModel && v.Rejection != RejectNoQueue
	})
}

// Unplaceable turns a Pending decision into what the gate asks for: waiting,
// giving quota back if others want it, or giving up. held is since when the workload
// holds quota without a place. Where the metrics, the gate or a connection are at fault
// it waits.
func Unplaceable(d Decision, rule v1alpha1.WhenUnplaceable, record dispatch.Record, held, now time.Time) Decision {
	if d.State != Pending || slices.Contains([]string{ReasonNoMetrics, ReasonStale, ReasonGateNotReady, ReasonOrphanedCopy}, d.Reason) {
		return d
	}
	if d.NoRoomAnywhere && rule.GiveUpAfterSeconds != nil && record.UnplacedFor(held, now) >= time.Duration(*rule.GiveUpAfterSeconds)*time.Second {
		d.State, d.Reason = Rejected, ReasonGaveUp
		d.Message = Truncate("gave up: " + d.Message)
		return d
	}
	due := now.Sub(held) >= timing.Seconds(rule.YieldAfterSeconds, timing.DefaultYieldAfter) &&
		(record.Yields == 0 || now.Sub(record.LastYield) >= dispatch.YieldPause(record.Yields))
	if due && rule.Mode == v1alpha1.UnplaceableYield {
		d.State, d.Reason = Retry, ReasonYield
		d.Message = Truncate("gives its quota to others: " + d.Message)
	}
	return d
}
