package workload

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
)

// logDecision writes a decision of a gate and what it rests on, at debug level. The order of decidedAt is that in
// which the ledger had the decisions.
func logDecision(ctx context.Context, out *engine.Outcome) {
	s, d, logger := out.Situation, out.Step.Decision, log.FromContext(ctx).V(1)
	if d == nil || !s.Decides() || !logger.Enabled() {
		return
	}
	in := s.Inputs(s.Record.Attempt + 1)
	logger.Info("Workload decided", "gate", s.Gate.Name, "uid", in.Facts.UID, "observedAt", s.Now, "resourceVersion", s.Workload.ResourceVersion,
		"decidedAt", out.DecidedAt, "attempt", in.Attempt, "decision", d, "candidates", in.Candidates, "fleet", in.Fleet)
}
