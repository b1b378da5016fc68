package lifecycle

import (
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// RunningOn is the ledger's record of the workload on the cluster that admitted it.
func (s *Situation) RunningOn(e ledger.Entry) ledger.Running {
	running := ledger.Running{UID: e.UID, Namespace: s.Workload.Namespace, Cluster: e.Cluster, Queue: e.Queue, Priority: s.Rank().Priority, PodSets: e.PodSets, Since: e.DebitedAt}
	running.ReportsPodsReady = kueuestate.ReportsPodsReady(s.Workload)
	running.StartedAt = s.History.StartedAt
	if limit := kueuestate.MaxRunTime(s.Workload); limit > 0 {
		running.EndsBy = e.DebitedAt.Add(limit)
	}
	return running
}
