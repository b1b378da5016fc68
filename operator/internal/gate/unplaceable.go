package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const (
	firstPause = 5 * time.Minute
	lastPause  = 30 * time.Minute
)

// YieldPause is how long quota is held between two yields.
func YieldPause(yields int) time.Duration {
	pause := firstPause
	for i := 1; i < yields && pause < lastPause; i++ {
		pause *= 2
	}
	return min(pause, lastPause)
}

// Unplaceable turns a Pending decision into what the gate asks for: waiting,
// giving quota back for others, or giving up. waiting is how long the workload
// has held quota without a place; others says whether another workload is
// pending for the same quota. Where the metrics or the gate are at fault it waits.
func Unplaceable(d Decision, rule v1alpha1.OnUnplaceable, dispatch Dispatch, waiting time.Duration, others bool, now time.Time) Decision {
	if d.State != Pending || d.Reason == ReasonNoMetrics || d.Reason == ReasonStale || d.Reason == ReasonGateNotReady {
		return d
	}
	unplaced := waiting
	if !dispatch.UnplacedSince.IsZero() {
		unplaced = now.Sub(dispatch.UnplacedSince)
	}
	if rule.GiveUpAfterSeconds != nil && unplaced >= time.Duration(*rule.GiveUpAfterSeconds)*time.Second {
		d.State, d.Reason = Rejected, ReasonGaveUp
		d.Message = Truncate("gave up: " + d.Message)
		return d
	}
	if rule.Mode != v1alpha1.UnplaceableYield || !others {
		return d
	}
	due := waiting >= Seconds(rule.YieldAfterSeconds, DefaultYieldAfter)
	if dispatch.Yields > 0 {
		due = due && now.Sub(dispatch.LastYield) >= YieldPause(dispatch.Yields)
	}
	if due {
		d.State, d.Reason = Retry, ReasonYield
		d.Message = Truncate("gives its quota to others: " + d.Message)
	}
	return d
}
