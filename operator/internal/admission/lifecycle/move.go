package lifecycle

import "plimsoll.dev/plimsoll/operator/internal/admission/gate"

// A ReclaimPolicy moved the workload away from a cluster, for a waiting one. It does not go back for a while.

func limitOfMove(s *Situation) string {
	left, _ := s.Record.LeftCluster(s.Now)
	return left
}

func excludeByMove(s *Situation, c *gate.Candidate) {
	if left, leftFor := s.Record.LeftCluster(s.Now); c.Unusable == "" && c.Name == left {
		c.Unusable = "was left for " + leftFor
	}
}
