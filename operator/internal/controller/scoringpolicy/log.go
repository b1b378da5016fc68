package scoringpolicy

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/publish"
)

// logRound logs one line per round: at the info level if the round changed anything, and
// at the debug level otherwise. Condition transitions have lines of their own. A failed
// write and a changed mode are logged in addition.
func logRound(ctx context.Context, policy string, previous, done *completedRound) {
	logger := log.FromContext(ctx).WithValues("policy", policy)
	if previous != nil && previous.in.shadow != done.in.shadow {
		logger.Info("Mode changed", "from", modeOf(previous), "to", modeOf(done))
	}
	if err := done.published.Err; err != nil {
		logger.Error(err, "Could not write all scores", "failed", done.published.Failed)
	}
	level := 1
	if previous == nil || hasChanged(previous, done) {
		level = 0
	}
	s := summarize(done.report.Result)
	logger.V(level).Info("Round finished",
		"clusters", s.Clusters, "scored", s.Scored, "kept", s.Kept, "worst", s.Worst, "omitted", s.Omitted,
		"written", done.published.Written, "took", done.took.Round(time.Millisecond).String())
}

// hasChanged reports whether a round differs from the previous one in more than renewed
// validity.
func hasChanged(previous, done *completedRound) bool {
	p := done.published
	renewed := p.Reasons[publish.ReasonValidity]
	return p.Written > renewed || p.Deleted > 0 || p.Failed > 0 ||
		summarize(previous.report.Result) != summarize(done.report.Result)
}

func modeOf(done *completedRound) v1alpha1.Mode {
	if done.in.shadow {
		return v1alpha1.ModeShadow
	}
	return v1alpha1.ModeEnforce
}
