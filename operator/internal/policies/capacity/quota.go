package capacity

import (
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Rules of a policy that apply to all its quotas.
type Rules struct {
	// KeepLast is the time for which the last number of a cluster counts.
	KeepLast time.Duration
	// LowerAfter is the time for which fewer devices must be measured.
	LowerAfter time.Duration
	// RaiseAfter is the number of rounds that must agree on a raise.
	RaiseAfter int32
	// IsEarly is true for a round that follows the last one by much less than the period. It does not
	// count for a raise.
	IsEarly bool
	// SinceLast is the time since the last round. A failed round does not count it for a decrease.
	SinceLast time.Duration
	// BelowReserved allows quotas below what workloads have reserved.
	BelowReserved bool
}

// Reading is what one round measured for one quota.
type Reading struct {
	// Failed is true if the response is unusable as a whole: the query failed, or stores
	// of the source did not respond. Clusters are then empty.
	Failed bool
	// Clusters are the eligible clusters.
	Clusters []ClusterReading
}

// ClusterReading is what one round measured for one cluster.
type ClusterReading struct {
	Name string
	// Devices is meaningful only if Reason is empty.
	Devices float64
	// Unhealthy is the number of broken devices, and nil if it is unknown.
	Unhealthy *int64
	// Reason why the number is unknown. Empty if it is known.
	Reason string
}

// Use is how much of a quota other objects determine.
type Use struct {
	// Reserved are the devices that workloads have reserved.
	Reserved int64
	// QueueQuota is the sum of nominal quotas that the policy does not write.
	QueueQuota int64
	// CohortQuota is the nominal quota of the Cohort, and nil if the policy has no Cohort yet.
	CohortQuota *int64
}

// Next returns the state of a quota after a round. last is the state after the previous
// round, and empty in the first one.
func Next(spec *v1alpha1.MeasuredQuota, rules Rules, last v1alpha1.QuotaStatus, reading Reading, use Use, now time.Time) v1alpha1.QuotaStatus {
	state := last
	state.Flavor, state.Resource, state.Reserved, state.QueueQuota = spec.Flavor, spec.Resource, use.Reserved, use.QueueQuota
	if state.Quota == nil && use.CohortQuota != nil {
		state.Quota = new(*use.CohortQuota + use.QueueQuota)
	}
	if reading.Failed {
		state.Raise, state.Lower = nil, pauseDecrease(last.Lower, rules, now)
		if state.Quota != nil {
			state.Quota = new(max(limit(spec, *state.Quota), min(reservedFloor(spec, rules, use), *state.Quota)))
		}
		return state
	}
	state.Clusters, state.Measured = clusters(spec, rules.KeepLast, last.Clusters, reading.Clusters, now)
	state.Unhealthy = unhealthy(state.Clusters)
	wanted := limit(spec, state.Measured)
	if state.Quota == nil {
		state.Quota = new(max(wanted, reservedFloor(spec, rules, use)))
		return state
	}
	quota := limit(spec, *state.Quota)
	quota = lowerByUnhealthy(spec, quota, wanted, newlyBroken(last.Clusters, state.Clusters))
	quota = move(spec, rules, &state, quota, wanted, now)
	// What is reserved stops a decrease, but raises nothing: more may be reserved than exists.
	if floor := min(reservedFloor(spec, rules, use), *state.Quota); quota < floor {
		state.Lower = dueDecrease(last.Lower, quota, rules.LowerAfter, now)
		quota = floor
	}
	state.Quota = &quota
	return state
}

// dueDecrease returns a decrease that is due, and that reservations stopped. It follows them in the
// next rounds: a new clock could end again in a round in which everything is reserved.
func dueDecrease(pending *v1alpha1.PendingLower, to int64, after time.Duration, now time.Time) *v1alpha1.PendingLower {
	since := now.Add(-after)
	if pending != nil && pending.Since.Time.Before(since) {
		since = pending.Since.Time
	}
	return &v1alpha1.PendingLower{To: to, Since: metav1.NewTime(since).Rfc3339Copy()}
}

// pauseDecrease returns the pending decrease after a failed round. The round measured nothing, and so
// no larger number that would end the decrease. A decrease that reservations stopped stays due. The
// clock of another one does not count the time since the last round: nothing is known of it.
func pauseDecrease(pending *v1alpha1.PendingLower, rules Rules, now time.Time) *v1alpha1.PendingLower {
	if pending == nil || now.Add(-rules.SinceLast).Sub(pending.Since.Time) >= rules.LowerAfter {
		return pending
	}
	since := pending.Since.Add(rules.SinceLast)
	if since.After(now) { // several early rounds failed, and count the same time
		since = now
	}
	return &v1alpha1.PendingLower{To: pending.To, Since: metav1.NewTime(since).Rfc3339Copy()}
}

// RestartClocks returns the state without what depends on the time since the last round:
// pending changes end, and the last numbers of clusters count for the whole keep time again.
func RestartClocks(state v1alpha1.QuotaStatus, now time.Time) v1alpha1.QuotaStatus {
	state.Raise, state.Lower = nil, nil
	state.Clusters = slices.Clone(state.Clusters)
	for i := range state.Clusters {
		if c := &state.Clusters[i]; c.State == v1alpha1.CapacityKept {
			c.Since = new(metav1.NewTime(now).Rfc3339Copy())
		}
	}
	return state
}

// CohortQuota returns the nominal quota that the Cohort must have: the quota, less what its
// ClusterQueues have themselves.
func CohortQuota(state *v1alpha1.QuotaStatus) int64 {
	if state.Quota == nil {
		return 0
	}
	return max(*state.Quota-state.QueueQuota, 0)
}

// reservedFloor returns the quota below which no decrease goes. It is at most the maximum, which
// applies at once.
func reservedFloor(spec *v1alpha1.MeasuredQuota, rules Rules, use Use) int64 {
	switch {
	case rules.BelowReserved:
		return 0
	case spec.Maximum != nil:
		return min(use.Reserved, *spec.Maximum)
	}
	return use.Reserved
}

// limit applies minimum and maximum.
func limit(spec *v1alpha1.MeasuredQuota, quota int64) int64 {
	if spec.Maximum != nil {
		quota = min(quota, *spec.Maximum)
	}
	return max(quota, spec.Minimum)
}

// unhealthy returns the number of devices that are known to be broken.
func unhealthy(clusters []v1alpha1.ClusterCapacity) (sum int64) {
	for _, c := range clusters {
		sum += ptr.Deref(c.Unhealthy, 0)
	}
	return sum
}

// newlyBroken returns by how much the number of broken devices has grown on the clusters that had one
// before. On the others, nothing is known of when the devices broke.
func newlyBroken(before, now []v1alpha1.ClusterCapacity) (sum int64) {
	known := map[string]int64{}
	for _, c := range before {
		if c.Unhealthy != nil {
			known[c.Name] = *c.Unhealthy
		}
	}
	for _, c := range now {
		if old, ok := known[c.Name]; ok && c.Unhealthy != nil {
			sum += *c.Unhealthy - old
		}
	}
	return sum
}

// lowerByUnhealthy lowers a quota at once as far as newly broken devices explain it. One
// broken device makes a whole node useless for jobs of whole nodes. A change within the deadband is
// ignored.
func lowerByUnhealthy(spec *v1alpha1.MeasuredQuota, quota, wanted, newlyBroken int64) int64 {
	if newlyBroken <= 0 || wanted >= quota {
		return quota
	}
	node := int64(max(spec.RoundTo, 1))
	lowered := max(wanted, quota-(newlyBroken+node-1)/node*node)
	if quota-lowered < spec.Deadband {
		return quota
	}
	return lowered
}

// move raises or lowers the quota if the rules allow it now, and otherwise records the
// pending change in state.
func move(spec *v1alpha1.MeasuredQuota, rules Rules, state *v1alpha1.QuotaStatus, quota, wanted int64, now time.Time) int64 {
	raise, lower := state.Raise, state.Lower
	state.Raise, state.Lower = nil, nil
	switch {
	case wanted == quota, max(wanted-quota, quota-wanted) < spec.Deadband:
		return quota
	case wanted > quota:
		next := v1alpha1.PendingRaise{To: wanted, Rounds: 1}
		if raise != nil {
			next.To, next.Rounds = min(raise.To, wanted), raise.Rounds
			if !rules.IsEarly {
				next.Rounds++
			}
		}
		if next.Rounds >= rules.RaiseAfter {
			return max(next.To, quota)
		}
		state.Raise = &next
	default:
		next := v1alpha1.PendingLower{To: wanted, Since: metav1.NewTime(now).Rfc3339Copy()}
		if lower != nil {
			next.To, next.Since = max(lower.To, wanted), lower.Since
		}
		if now.Sub(next.Since.Time) >= rules.LowerAfter {
			return min(next.To, quota)
		}
		state.Lower = &next
	}
	return quota
}

// clusters returns the part of each cluster, and the sum.
func clusters(spec *v1alpha1.MeasuredQuota, keepLast time.Duration, last []v1alpha1.ClusterCapacity, readings []ClusterReading, now time.Time) (parts []v1alpha1.ClusterCapacity, sum int64) {
	before := map[string]v1alpha1.ClusterCapacity{}
	for _, c := range last {
		before[c.Name] = c
	}
	for _, reading := range readings {
		old, existed := before[reading.Name]
		part := v1alpha1.ClusterCapacity{Name: reading.Name, State: v1alpha1.CapacityFresh, Reason: reading.Reason}
		switch {
		case reading.Reason == "":
			part.Devices, part.Unhealthy = roundDown(reading.Devices, spec.RoundTo), reading.Unhealthy
			if part.Unhealthy == nil && spec.UnhealthyQuery != "" { // the query failed
				part.Unhealthy = old.Unhealthy
			}
		default:
			part.Since = old.Since
			if part.Since == nil {
				part.Since = new(metav1.NewTime(now).Rfc3339Copy())
			}
			part.State = v1alpha1.CapacityMissing
			if existed && old.State != v1alpha1.CapacityMissing && now.Sub(part.Since.Time) < keepLast {
				part.State, part.Devices = v1alpha1.CapacityKept, old.Devices
				if spec.UnhealthyQuery != "" {
					part.Unhealthy = old.Unhealthy
				}
			}
		}
		sum += part.Devices
		parts = append(parts, part)
	}
	return parts, sum
}

// roundDown returns the largest multiple of step that is at most devices. Numbers that no
// fleet has are limited, so that sums don't overflow.
func roundDown(devices float64, step int32) int64 {
	n, node := int64(min(max(devices, 0), math.MaxInt32)), int64(max(step, 1))
	return n - n%node
}
