package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// The record of a workload names clusters that it avoids for a time:
//   - the one that it left for a waiting workload when a ReclaimPolicy moved it
//   - those that did not admit or start it, while another cluster could hold it. Otherwise it would go there again,
//     where devices are still free, and hang again.

func limitOfAvoidance(s *Situation) string {
	var clusters []string
	for _, p := range s.Record.Avoided(s.Now) {
		clusters = append(clusters, p.Cluster)
	}
	return strings.Join(clusters, " ")
}

func excludeByAvoidance(s *Situation, c *gate.Candidate) {
	for _, p := range s.Record.Avoided(s.Now) {
		switch {
		case p.Cluster != c.Name:
		case p.IfOther:
			c.LastResort = fmt.Sprintf("%s, and is avoided until %s", p.Why, p.Until.UTC().Format(time.TimeOnly+" UTC"))
		default:
			c.Exclude(gate.RejectAvoided, p.Why)
		}
	}
}

// FailedStart is that a cluster admitted the workload and did not start its pods.
type FailedStart struct {
	Cluster string
	At      time.Time
	// Cause is the reason of the eviction.
	Cause string
}

// FailedStart is how the attempt failed that ended with the loss of quota; nil = it did not, or Kueue does not report
// whether pods are ready.
func (s *Situation) FailedStart() *FailedStart {
	ran := s.History.Running
	if ran == nil || !s.History.StartedAt.IsZero() || !kueuestate.ReportsPodsReady(s.Workload) {
		return nil
	}
	if cause := kueuestate.CauseOfFailedStart(s.Workload, ran.DebitedAt, s.History.failedStarts, s.Now); cause != "" {
		return &FailedStart{Cluster: ran.Cluster, At: s.Now, Cause: cause}
	}
	return nil
}

// AfterFailedStart is the record with the cluster that did not start the workload; nil = all did.
func (r Record) AfterFailedStart(f *FailedStart) Record {
	if f == nil {
		return r
	}
	return r.avoidIfOther(f.Cluster, "did not start its pods ("+f.Cause+")", f.At)
}

// avoidIfOther is the record with a cluster that is avoided while another one could hold the workload. failure is
// what the cluster did, as a predicate.
func (r Record) avoidIfOther(cluster, failure string, at time.Time) Record {
	r.Record = r.AvoidIfOther(cluster, at.Add(timing.StartAvoidance), failure)
	return r
}

// recordFailedStart are the writes for a failed start that the record does not have yet.
func recordFailedStart(s *Situation) []Write {
	f := s.History.FailedStart
	if f == nil || s.Record.Err != nil {
		return nil
	}
	return []Write{{Record: &RecordWrite{Record: s.Record.Record}, Event: &Notice{Warning: true, Reason: "NotStarted", Message: gate.Truncate(fmt.Sprintf(
		"%s admitted it, but did not start its pods (%s); for %s it is avoided while another cluster could hold the workload", f.Cluster, f.Cause, timing.StartAvoidance))}}}
}
