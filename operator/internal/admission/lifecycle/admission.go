package lifecycle

import (
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// IsNewQuota reports whether the quota was reserved since the last look. If it was released and
// reserved within one second, only the number of evictions has changed.
func (s *Situation) IsNewQuota() bool {
	hasEnded := !kueuestate.IsEvicted(s.Workload) && s.History.evictions != kueuestate.CountEvictions(s.Workload)
	return !s.History.ReservedAt.Equal(kueuestate.QuotaReservedAt(s.Workload)) || hasEnded
}

// RunningOn is the ledger's record of the workload on the cluster that admitted it.
func (s *Situation) RunningOn(e ledger.Entry) ledger.Running {
	running := ledger.Running{UID: e.UID, Cluster: e.Cluster, ClusterQueue: s.Request.Facts.ClusterQueue, Priority: s.Rank().Priority, PodSets: e.PodSets, Since: e.DebitedAt}
	if limit := kueuestate.MaxRunTime(s.Workload); limit > 0 {
		running.EndsBy = e.DebitedAt.Add(limit)
	}
	return running
}
