package gate

import (
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// full says that every candidate was measured, without doubt, and has no room. One
// that anything else rules out might have.
func full(verdicts []Verdict, fleet Fleet) bool {
	return fleet.Problem == "" && !fleet.Doubtful && !slices.ContainsFunc(verdicts, func(v Verdict) bool {
		return v.Out != OutNoRoom && v.Out != OutNoModel && v.Out != OutNoQuota
	})
}

// Unplaceable turns a Pending decision into what the gate asks for: waiting,
// giving quota back if others want it, or giving up. held is since when the workload
// holds quota without a place. Where the metrics, the gate or a connection are at fault
// it waits.
func Unplaceable(d Decision, rule v1alpha1.WhenUnplaceable, dispatch Dispatch, held, now time.Time) Decision {
	if d.State != Pending || slices.Contains([]string{ReasonNoMetrics, ReasonStale, ReasonGateNotReady, ReasonCopyLeft}, d.Reason) {
		return d
	}
	if d.Full && rule.GiveUpAfterSeconds != nil && dispatch.Unplaced(held, now) >= time.Duration(*rule.GiveUpAfterSeconds)*time.Second {
		d.State, d.Reason = Rejected, ReasonGaveUp
		d.Message = Truncate("gave up: " + d.Message)
		return d
	}
	due := now.Sub(held) >= Seconds(rule.YieldAfterSeconds, DefaultYieldAfter) &&
		(dispatch.Yields == 0 || now.Sub(dispatch.LastYield) >= YieldPause(dispatch.Yields))
	if due && rule.Mode == v1alpha1.UnplaceableYield {
		d.State, d.Reason = Retry, ReasonYield
		d.Message = Truncate("gives its quota to others: " + d.Message)
	}
	return d
}
