package gate

import (
	"fmt"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// rejectLastResorts rejects the clusters where the workload did not start, and those that do not start what they
// admit, if another cluster could hold the workload: nothing speaks against that one but a lack of room now.
func (e *evaluation) rejectLastResorts(candidates []Candidate, verdicts []Verdict, view ledger.View) {
	broken := make([]BrokenRule, len(candidates))
	hasOther := false
	for i := range candidates {
		c := &candidates[i]
		if broken[i] = e.lastResort(c, view); broken[i].Rejection == RejectNone {
			hasOther = hasOther || verdicts[i].Rejection.countsForTier() && c.couldHold(e.facts.PodSets)
		}
	}
	if !hasOther {
		return
	}
	for i, b := range broken {
		if b.Rejection != RejectNone && verdicts[i].Rejection.countsForTier() {
			verdicts[i] = verdicts[i].reject(b)
		}
	}
}

// lastResort is why the workload is sent to a cluster only if no other one could hold it. RejectNone = it is not so.
func (e *evaluation) lastResort(c *Candidate, view ledger.View) BrokenRule {
	if c.LastResort != "" {
		return BrokenRule{RejectAvoided, c.LastResort}
	}
	if d := view.Doubt(c.Name, e.facts.Namespace, e.now); d != nil {
		return BrokenRule{RejectDoubted, fmt.Sprintf("%s have not started there since %s", quantity(int64(d.Workloads), "workload"), d.Since.UTC().Format(time.TimeOnly+" UTC"))}
	}
	return BrokenRule{}
}
