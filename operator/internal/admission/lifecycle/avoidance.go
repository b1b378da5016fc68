package lifecycle

import (
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// The record of a workload names clusters that it avoids for a time, such as the one that it left for a waiting
// workload when a ReclaimPolicy moved it.

func limitOfAvoidance(s *Situation) string {
	var clusters []string
	for _, p := range s.Record.Avoided(s.Now) {
		clusters = append(clusters, p.Cluster)
	}
	return strings.Join(clusters, " ")
}

func excludeByAvoidance(s *Situation, c *gate.Candidate) {
	avoided := s.Record.Avoided(s.Now)
	if i := slices.IndexFunc(avoided, func(p dispatch.Preference) bool { return p.Cluster == c.Name }); i >= 0 {
		c.Exclude(gate.RejectAvoided, avoided[i].Why)
	}
}
