package scoringpolicy

import (
	"hash/fnv"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Policies of one source with the same period are due at the same times. Their rounds then
// evaluate at the same timestamp, so that a query that several policies contain is sent
// once. Policies of other sources are due at other times.

// lastDue returns the latest time, not after now, at which a policy is due.
func lastDue(policy *v1alpha1.ScoringPolicy, now time.Time) time.Time {
	period := periodOf(policy)
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(policy.Spec.SourceRef.Name)) // never fails
	offset := time.Duration(hash.Sum64() % uint64(24*time.Hour))
	return now.Add(-time.Duration(now.UnixNano()-int64(offset)) % period)
}

// evaluationTime returns the timestamp at which a round that starts now evaluates its
// queries. For the periodic round, this is the time at which the policy was due. Another
// round, for example after a change of the policy, evaluates at its start.
func (r *Reconciler) evaluationTime(policy *v1alpha1.ScoringPolicy, now time.Time) time.Time {
	due := lastDue(policy, now)
	state := r.stateOf(policy)
	if state != nil && state.generation == policy.Generation && state.startedAt.Before(due) && now.Sub(due) < periodOf(policy)/4 {
		return due
	}
	return now
}

// timeToNextRound returns the time until the policy is due again, or until a keep time ends if
// that is earlier.
func timeToNextRound(policy *v1alpha1.ScoringPolicy, done *completedRound, now time.Time) time.Duration {
	due := lastDue(policy, now).Add(periodOf(policy))
	if end, kept := done.report.Result.NextKeepEnd(); kept && end.Before(due) {
		due = end
	}
	return max(due.Sub(now), 50*time.Millisecond)
}

// beginRound counts a round of a source. It returns false if the source has too many.
func (r *Reconciler) beginRound(source string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[source] >= maxRoundsPerSource {
		return false
	}
	if r.running == nil {
		r.running = map[string]int{}
	}
	r.running[source]++
	return true
}

// isLate reports whether a policy without a turn at its source must have a round without responses:
//
//   - Its last round started a period and a quarter ago. Its scores would expire, and OCM reads
//     expired scores as 0. A shorter wait is normal: policies of a source are due together.
//   - The keep time of a score has ended.
func (r *Reconciler) isLate(policy *v1alpha1.ScoringPolicy) bool {
	now, period := r.now(), periodOf(policy)
	if state := r.stateOf(policy); state != nil {
		end, ends := state.last.report.Result.NextKeepEnd()
		return ends && !end.After(now) || now.Sub(state.startedAt) >= period*5/4
	}
	last := policy.Status.LastRound
	return last != nil && now.Sub(last.Time.Time) >= period*5/4
}

// endRound ends a round that beginRound counted.
func (r *Reconciler) endRound(source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[source]--; r.running[source] == 0 {
		delete(r.running, source)
	}
}
