package workload

import (
	"fmt"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// watchStock tells the gate, and once the workload, that Kueue's own dispatcher, to
// which the operator leaves nominations, makes none: as where it is told to leave them
// to us. It says when to look again; 0 = there is nothing to watch.
func (r *Reconciler) watchStock(s *subject) time.Duration {
	since := kueuestate.UnnominatedSince(s.wl, s.mk)
	if r.nominate || len(s.usable) == 0 || since.IsZero() {
		return 0
	}
	now := r.now()
	if left := timing.DispatchGrace - now.Sub(since); left > 0 {
		return left
	}
	at := since.UTC().Format(time.TimeOnly)
	evidence := r.board.Conflict(s.gateName, now) // one workload's stands for all: each change is a write of the gate's status
	if evidence == "" {
		evidence = fmt.Sprintf("nobody has nominated a cluster for %s since %s", s.key(), at)
	}
	r.board.ReportConflict(s.gateName, evidence, now)
	if r.tracks.late(s.wl.UID, 1+kueuestate.CountEvictions(s.wl)) {
		r.event(s.wl, true, "NotNominated", "nobody has nominated a cluster for it since "+at+
			": does multiKueue.dispatcherName in Kueue's configuration name one of its own?")
	}
	return timing.DispatchGrace
}
