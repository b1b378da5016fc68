package scoringpolicy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/publish"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
)

// policyState is the state of a policy that one process keeps between rounds.
type policyState struct {
	uid        types.UID
	generation int64
	startedAt  time.Time // start of the last round
	last       *completedRound
	// unwrittenSince is the start of the first round whose status could not be written. It is
	// zero if that of the last round was.
	unwrittenSince time.Time
}

// completedRound is a round with everything that it produced.
type completedRound struct {
	in        *roundInput
	report    *round.Report
	published *publish.Report
	took      time.Duration
}

// remember stores the round as the last one of the policy. It returns the round before
// it, or nil.
func (r *Reconciler) remember(policy *v1alpha1.ScoringPolicy, done *completedRound) *completedRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &policyState{uid: policy.UID, generation: policy.Generation, startedAt: done.in.request.Now, last: done}
	var previous *completedRound
	if state := r.policies[policy.Name]; state != nil && state.uid == policy.UID {
		previous, next.unwrittenSince = state.last, state.unwrittenSince
	}
	r.policies[policy.Name] = next
	return previous
}

// statusBackoff returns the time until a round that writes the status again, after that of the
// last round could not be written. It doubles with each attempt. The error is not returned to
// the queue, whose own back-off would end with the first attempt that untilNextRound delays, and
// could exceed the period.
func (r *Reconciler) statusBackoff(policy *v1alpha1.ScoringPolicy) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.policies[policy.Name]
	if state.unwrittenSince.IsZero() {
		state.unwrittenSince = state.startedAt
	}
	return max(minRoundInterval, r.now().Sub(state.unwrittenSince))
}

// endStatusBackoff records that the status of the last round was written.
func (r *Reconciler) endStatusBackoff(policy *v1alpha1.ScoringPolicy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policies[policy.Name].unwrittenSince = time.Time{}
}

// stateOf returns the state of a policy. It is nil before the first round, and for a
// policy that was deleted and created again.
func (r *Reconciler) stateOf(policy *v1alpha1.ScoringPolicy) *policyState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := r.policies[policy.Name]; state != nil && state.uid == policy.UID {
		return state
	}
	return nil
}

// lastRound returns the last round of a policy by name. It is nil before the first
// round.
func (r *Reconciler) lastRound(name string) *completedRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := r.policies[name]; state != nil {
		return state.last
	}
	return nil
}

// lastRounds returns the last round of every policy, by policy name.
func (r *Reconciler) lastRounds() map[string]*completedRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	rounds := make(map[string]*completedRound, len(r.policies))
	for name, state := range r.policies {
		rounds[name] = state.last
	}
	return rounds
}

// untilNextRound returns the time until the policy may run another round. Scenario: 100
// clusters join within a second. They cause one round, not 100. A changed policy does
// not wait.
func (r *Reconciler) untilNextRound(policy *v1alpha1.ScoringPolicy) time.Duration {
	state := r.stateOf(policy)
	if state == nil || state.generation != policy.Generation {
		return 0
	}
	interval := min(minRoundInterval, periodOf(policy)/2)
	return state.startedAt.Add(interval).Sub(r.now())
}
