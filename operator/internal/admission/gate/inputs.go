package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Inputs are the arguments of a decision, for callers that decide what would happen if something
// were different.
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

// Decide decides as the gate does.
func (in *Inputs) Decide(now time.Time) Decision {
	return Decide(in.Facts, in.Candidates, in.Fleet, in.View, in.Rules, in.Attempt, now)
}
