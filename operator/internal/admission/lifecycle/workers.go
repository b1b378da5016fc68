package lifecycle

import (
	"fmt"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// NotPermitted is why a connected cluster is none for the workload.
const NotPermitted = "is not in annotation " + kueuestate.ClusterNamesAnnotation

// MultiKueue sends a workload only to connected clusters of its configuration, and to those that the
// workload's annotation permits.

func limitOfWorkers(s *Situation) string {
	permitted, isRestricted := kueuestate.PermittedClusters(s.Workload)
	if !isRestricted || s.Dispatch() == Local {
		return s.Checks.Config
	}
	return fmt.Sprintf("%s permits %q", s.Checks.Config, permitted)
}

func excludeByWorkers(s *Situation, c *gate.Candidate) {
	if s.Dispatch() != Local && !s.MultiKueue.isConnected(c.Name) {
		switch why, isMember := s.MultiKueue.Disconnected[c.Name]; {
		case isMember && why != NotPermitted:
			c.Exclude(gate.RejectDisconnected, why)
		case !isMember && mayRequestClusters(s):
			c.Outside = true
		case !isMember:
			c.Exclude(gate.RejectNotMember, s.Checks.Config)
		}
	}
	c.Outside = c.Outside || s.Gate.isLeaving(c.Name, s.Workload.Status.NominatedClusterNames)
	if s.MultiKueue.Disconnected[c.Name] == NotPermitted || c.Outside && !kueuestate.AllowsCluster(s.Workload, c.Name) {
		c.Exclude(gate.RejectNotPermitted, kueuestate.ClusterNamesAnnotation)
	}
}

// mayRequestClusters reports whether the gate can add clusters to its MultiKueueConfig. Under
// Kueue's built-in dispatcher no member can leave: Kueue may nominate it at any time.
func mayRequestClusters(s *Situation) bool {
	return s.Dispatch() == OwnDispatch && s.Gate.Spec.MultiKueue != nil
}
