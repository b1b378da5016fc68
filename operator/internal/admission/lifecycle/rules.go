package lifecycle

import (
	"fmt"
	"math/bits"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// Rules are the gate's rules for the workload. What they read of it, apart from its rank, are limits.
func (s *Situation) Rules() gate.Rules {
	rules := gate.RulesOf(&s.Gate.Spec)
	rules.Incumbents = SentTo(s)
	if hasPlaceInJob(s) {
		rules.Incumbents = append(rules.Incumbents, s.Job.Cluster)
	}
	rules.Hold.Gate = s.Gate.Name
	rules.Rank, rules.RunsFor = s.Rank(), runTimeLimit(s)
	if s.Request.Facts.Remote {
		rules.PreemptsLowerPriority, rules.Reclaim = s.Queue.PreemptsLowerPriority, s.Queue.Reclaim
		rules.WholeNodes = kueuestate.IsGateFirst(s.Workload)
		rules.PreemptsUncounted, rules.CohortQueues = s.Queue.PreemptsUncounted, s.Queue.CohortQueues
	}
	return rules
}

func limitOfPreemption(s *Situation) string {
	if !s.Request.Facts.Preempts {
		return "" // the priority orders the line only
	}
	return fmt.Sprint("below ", s.Rank().Priority, " whole nodes ", kueuestate.IsGateFirst(s.Workload))
}

func limitOfRunTime(s *Situation) string {
	if limit := runTimeLimit(s); limit > 0 {
		return limit.String()
	}
	return ""
}

func limitOfHold(s *Situation) string {
	if mayHold(s) {
		return ""
	}
	return "holds no cluster"
}

// runTimeLimit is the longest time for which the workload's job runs, rounded up; zero = unknown.
func runTimeLimit(s *Situation) time.Duration { return roundUp(s.Job.maxRunTime(s.Workload)) }

// roundUp rounds up a duration by at most an eighth, to one of eight values between two powers of
// two. Jobs with many different limits then wait in few lines.
func roundUp(d time.Duration) time.Duration {
	seconds := (d + time.Second - 1) / time.Second
	step := time.Duration(1) << max(bits.Len64(uint64(seconds))-4, 0)
	return (seconds + step - 1) / step * step * time.Second
}
