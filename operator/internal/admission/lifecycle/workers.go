package lifecycle

import (
	"fmt"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// MultiKueue sends a workload only to connected clusters of its configuration, and to those that the
// workload's annotation permits.

func limitOfWorkers(s *Situation) string {
	permitted, isRestricted := kueuestate.PermittedClusters(s.Workload)
	if !isRestricted || s.Checks.MultiKueue == "" {
		return s.MultiKueue.Config
	}
	return fmt.Sprintf("%s permits %q", s.MultiKueue.Config, permitted)
}

func excludeByWorkers(s *Situation, c *gate.Candidate) {
	if s.Checks.MultiKueue != "" && !s.MultiKueue.isConnected(c.Name) {
		c.Unusable = s.MultiKueue.Disconnected[c.Name]
		if isMember := c.Unusable != ""; !isMember && s.mayRequestClusters() {
			c.Outside = true
		} else if !isMember {
			c.Unusable = "is not in MultiKueueConfig " + s.MultiKueue.Config
		}
	}
	c.Outside = c.Outside || s.isLeaving(c.Name)
	if c.Outside && !kueuestate.AllowsCluster(s.Workload, c.Name) {
		c.Unusable = "is not in annotation " + kueuestate.ClusterNamesAnnotation
	}
}

// mayRequestClusters reports whether the gate can add clusters to its MultiKueueConfig. Under
// Kueue's built-in dispatcher no member can leave: Kueue may nominate it at any time.
func (s *Situation) mayRequestClusters() bool {
	return s.MultiKueue.Nominates && s.Gate.Spec.MultiKueue != nil
}
