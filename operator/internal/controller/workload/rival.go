package workload

import (
	"fmt"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// watchRival tells the gate when somebody else nominates, as Kueue does unless it
// is told to leave that to us. What was nominated before the gate had its say, as
// when its check is new on the queue, says nothing.
func (r *Reconciler) watchRival(s *subject) {
	if !r.nominate || s.mk == "" || s.check().State != kueue.CheckStateReady || kueuestate.IsPinnedByKueue(s.wl) {
		return
	}
	record, err := dispatch.Decode(s.wl.Annotations)
	if err != nil {
		return
	}
	clusters, at := s.wl.Status.NominatedClusterNames, r.now()
	if s.wl.Status.ClusterName != nil {
		clusters, at = []string{*s.wl.Status.ClusterName}, admittedAt(s.wl, s.mk, at)
	}
	if theirs := record.Foreign(clusters); len(theirs) > 0 {
		r.board.ReportConflict(s.gateName, fmt.Sprintf("%s was nominated to %s by another dispatcher", s.key(), strings.Join(theirs, ", ")), at)
	}
}
