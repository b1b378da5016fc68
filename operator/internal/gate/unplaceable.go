package gate

import (
	"slices"
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

// Unplaced is how long no cluster had room while the workload held quota. held is
// since when it holds it now.
func (d Dispatch) Unplaced(held, now time.Time) time.Duration {
	before := time.Duration(d.UnplacedSeconds) * time.Second
	if d.UnplacedSince.IsZero() {
		return before
	}
	since := d.UnplacedSince
	if held.After(since) {
		since = held
	}
	return before + max(now.Sub(since), 0)
}

// Counting starts the clock of Unplaced, or stops it.
func (d Dispatch) Counting(on bool, held, now time.Time) Dispatch {
	switch {
	case on && d.UnplacedSince.IsZero():
		d.UnplacedSince = now.UTC().Truncate(time.Millisecond)
	case !on && !d.UnplacedSince.IsZero():
		d.UnplacedSeconds, d.UnplacedSince = int64(d.Unplaced(held, now).Seconds()), time.Time{}
	}
	return d
}
