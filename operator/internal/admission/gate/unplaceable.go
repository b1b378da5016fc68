package gate

import (
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// faultReasons are the reasons of decisions for which metrics, the gate or a connection are
// at fault. A workload then waits, because another workload could not start either.
var faultReasons = []string{ReasonNoMetrics, ReasonStale, ReasonGateNotReady, ReasonOrphanedCopy, ReasonQueued}

// Unplaceable applies a gate's whenUnplaceable to a Pending decision. The workload waits,
// yields (Retry) or is given up (Rejected). quotaSince is since when the workload holds
// quota without a place.
func Unplaceable(d Decision, spec v1alpha1.WhenUnplaceable, record dispatch.Record, quotaSince, now time.Time) Decision {
	switch {
	case d.State != Pending || slices.Contains(faultReasons, d.Reason):
	case d.NoRoomAnywhere && isGivenUp(spec, record, quotaSince, now):
		d.State, d.Reason, d.Hold = Rejected, ReasonGaveUp, nil
		d.Message = Truncate("gave up: " + d.Message)
	case d.Hold != nil && !d.Hold.Shadow: // a workload without quota could not use what is held for it
	case spec.Mode == v1alpha1.UnplaceableYield && isYieldDue(spec, record, quotaSince, now):
		d.State, d.Reason = Retry, ReasonYield
		d.Message = Truncate("returns its quota for other workloads: " + d.Message)
	}
	return d
}

// UnplaceableAfter returns the time until whenUnplaceable may change a Pending decision. It
// returns 0 if that time has come, and if whenUnplaceable never applies.
func UnplaceableAfter(spec v1alpha1.WhenUnplaceable, record dispatch.Record, quotaSince, now time.Time) time.Duration {
	var after time.Duration
	earliest := func(d time.Duration) {
		if d > 0 && (after == 0 || d < after) {
			after = d
		}
	}
	if spec.GiveUpAfterSeconds != nil {
		earliest(time.Duration(*spec.GiveUpAfterSeconds)*time.Second - record.UnplacedFor(quotaSince, now))
	}
	if spec.Mode == v1alpha1.UnplaceableYield {
		yield := timing.Seconds(spec.YieldAfterSeconds, timing.DefaultYieldAfter) - now.Sub(quotaSince)
		if record.Yields > 0 {
			yield = max(yield, dispatch.YieldPause(record.Yields)-now.Sub(record.LastYield))
		}
		earliest(yield)
	}
	return after
}

func isGivenUp(spec v1alpha1.WhenUnplaceable, record dispatch.Record, quotaSince, now time.Time) bool {
	after := spec.GiveUpAfterSeconds
	return after != nil && record.UnplacedFor(quotaSince, now) >= time.Duration(*after)*time.Second
}

func isYieldDue(spec v1alpha1.WhenUnplaceable, record dispatch.Record, quotaSince, now time.Time) bool {
	if now.Sub(quotaSince) < timing.Seconds(spec.YieldAfterSeconds, timing.DefaultYieldAfter) {
		return false
	}
	return now.Sub(record.LastYield) >= dispatch.YieldPause(record.Yields) // before the first yield, LastYield is zero
}
