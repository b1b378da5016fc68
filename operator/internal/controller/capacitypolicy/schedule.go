package capacitypolicy

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// sinceLastRound returns the time since the last round that was not early, and 0 before the first one.
func sinceLastRound(policy *v1alpha1.CapacityPolicy, now time.Time) time.Duration {
	if policy.Status.LastRoundTime == nil {
		return 0
	}
	return max(now.Sub(policy.Status.LastRoundTime.Time), 0)
}

// isEarly reports whether a round follows the last one by less than half a period: after a change of the
// policy, a failed write, or the end of a keep time or of the clock of a decrease. An early round does not
// count for raises, and does not move the time of the round that does.
func isEarly(policy *v1alpha1.CapacityPolicy, now time.Time) bool {
	return policy.Status.LastRoundTime != nil && sinceLastRound(policy, now) < seconds(policy.Spec.PeriodSeconds, 60)/2
}

// untilNextRound returns the time from now until the next round of a policy: a period after the last
// one that was not early, or less if the keep time of a cluster or the clock of a decrease ends before. began
// is the start of the last round: what ended before it is no reason for another one, as a decrease that
// reservations stop. What ended during the round is. A failed response stops the clocks, so that the
// next one is not earlier.
func untilNextRound(policy *v1alpha1.CapacityPolicy, measured *measurement, began, now time.Time) time.Duration {
	spec := &policy.Spec
	keepLast, lowerAfter := keepLastOf(spec), lowerAfterOf(spec)
	wait := seconds(spec.PeriodSeconds, 60)
	if isEarly(policy, began) {
		wait -= sinceLastRound(policy, began)
	}
	until := func(end time.Time) {
		if end.After(began) {
			wait = min(wait, max(end.Sub(now), rereadDelay))
		}
	}
	for i := range policy.Status.Quotas {
		if measured.readings[i].Failed {
			continue
		}
		q := &policy.Status.Quotas[i]
		if q.Lower != nil {
			until(q.Lower.Since.Add(lowerAfter))
		}
		for _, c := range q.Clusters {
			if c.State == v1alpha1.CapacityKept && c.Since != nil {
				until(c.Since.Add(keepLast))
			}
		}
	}
	return wait
}

func keepLastOf(spec *v1alpha1.CapacityPolicySpec) time.Duration {
	return pointedSeconds(spec.Advanced.KeepLastSeconds, 600)
}

func lowerAfterOf(spec *v1alpha1.CapacityPolicySpec) time.Duration {
	return pointedSeconds(spec.Advanced.LowerAfterSeconds, 300)
}
