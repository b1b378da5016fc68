package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Inputs are the arguments of a decision. lifecycle.Situation.Inputs puts them together.
type Inputs struct {
	Facts      shape.Facts
	Candidates []Candidate
	Fleet      Fleet
	View       ledger.View
	Rules      Rules
	Attempt    int
	// Source is the name of the gate's MetricsSource.
	Source string
	// AwaitsCheck is an admission check of another controller that is not Ready, without which no
	// cluster starts the workload. Empty means none.
	AwaitsCheck string
	// OwnFit is true if the gate has its own fit query, so that fit is not the sum over nodes of
	// floor(free devices / devices per pod).
	OwnFit bool
}

// A Decider decides in place of Inputs.Decide, at the times and so in the order that it chooses: no workload
// that it sends waits for its turn. A replay of recorded decisions has one.
type Decider func(in *Inputs, now time.Time) Decision

// Explain decides and explains each cluster.
func (in *Inputs) Explain(now time.Time) (Decision, []ClusterExplanation) {
	return Explain(in.Facts, in.Candidates, in.Fleet, in.View, in.Rules, in.Attempt, now)
}

// Decide decides as the gate does.
func (in *Inputs) Decide(now time.Time) Decision {
	return Decide(in.Facts, in.Candidates, in.Fleet, in.View, in.Rules, in.Attempt, now)
}
