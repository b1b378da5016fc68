package lifecycle

import (
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// Measured returns the situation with what a decision needs: the gate's clusters with their query results, and
// the ledger's view.
func (s *Situation) Measured(clusters []gate.Candidate, fleet gate.Fleet, view ledger.View) *Situation {
	measured := *s
	measured.Room.Candidates, measured.Room.Fleet, measured.Room.View = usable(s, clusters), fleet, view
	return &measured
}

// WithHistory returns the situation with another history.
func (s *Situation) WithHistory(h History) *Situation {
	other := *s
	other.History, other.Record = h, s.Record.AfterFailedStart(h.FailedStart)
	return &other
}

// WithView returns the situation with another view of the ledger.
func (s *Situation) WithView(view ledger.View) *Situation {
	other := *s
	other.Room.View = view
	return &other
}

// Inputs are what a decision of the gate about the workload rests on. Nothing else puts them together. attempt is
// that of the record: the next one for a new decision.
func (s *Situation) Inputs(attempt int) *gate.Inputs {
	return &gate.Inputs{
		Facts: s.JobFacts(), Candidates: s.Room.Candidates, Fleet: s.Room.Fleet, View: s.Room.View, Rules: s.Rules(),
		Attempt: attempt + kueuestate.CountEvictions(s.Workload), Source: s.Gate.Spec.SourceRef.Name, OwnFit: s.Gate.Spec.Queries.Fit != "",
		AwaitsCheck: s.Checks.Awaited(s.Workload),
	}
}
