package lifecycle

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// Conditions of phases that belong to no special case.

// isEvicting reports whether Kueue has time left to complete an eviction with the operator's help.
func isEvicting(s *Situation) bool {
	_, remaining := eviction(s)
	return remaining > 0
}

func isEvictionStuck(s *Situation) bool {
	isStuck, _ := eviction(s)
	return isStuck
}

// eviction reports whether an eviction waits for a nomination, and how much time it has before it counts as stuck.
func eviction(s *Situation) (isStuck bool, remaining time.Duration) {
	if s.Dispatch() != OwnDispatch {
		return false, 0
	}
	return kueuestate.IsEvictionStuck(s.Workload, s.Checks.MultiKueue, s.MultiKueue.EvictionLag, s.Now)
}

func isPausing(s *Situation) bool {
	return s.Record.hasYielded(s.Workload) && !kueuestate.IsActive(s.Workload) &&
		(kueuestate.HoldsQuota(s.Workload) || s.Now.Before(s.Record.returnsAt(s.Workload)) || staysWithPrimary(s))
}

func isUngated(s *Situation) bool {
	return len(s.Checks.Own) == 0 && s.Dispatch() == OwnDispatch && !s.Queue.LacksChecks
}

func isIdle(s *Situation) bool {
	isPlaced := s.Workload.Status.ClusterName != nil && len(s.Checks.Pending(s.Workload)) == 0
	return len(s.Checks.Own) == 0 || !kueuestate.AcceptsCheckUpdate(s.Workload) || isPlaced
}

func isPending(s *Situation) bool { return s.Check().State == kueue.CheckStatePending }

func isReady(s *Situation) bool { return s.Check().State == kueue.CheckStateReady }

// isRevoked reports whether another component removed a nomination of the gate.
func isRevoked(s *Situation) bool {
	return len(renominationList(s)) > len(s.Workload.Status.NominatedClusterNames)
}

// isNominating reports whether the gate may nominate, and no cluster is nominated or was.
func isNominating(s *Situation) bool {
	return isReady(s) && s.MayNominate() && !isRevoked(s) && len(s.Workload.Status.NominatedClusterNames) == 0
}
