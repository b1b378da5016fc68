package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Explanation states why a workload is on its cluster, or its next step.
type Explanation struct {
	// Workload is the namespace/name.
	Workload string `json:"workload"`
	Gate     string `json:"gate,omitempty"`
	// State and Message are those of the gate's admission check on the workload.
	State   string `json:"state,omitempty"`
	Message string `json:"message,omitempty"`
	// WaitsFor states the next step, and Next the event that can change it. See Snapshot.Wait.
	WaitsFor string `json:"waitsFor"`
	Next     string `json:"next,omitempty"`
	// Cluster is the cluster with the workload, or "".
	Cluster   string          `json:"cluster,omitempty"`
	Nominated []string        `json:"nominated,omitempty"`
	Dispatch  dispatch.Record `json:"dispatch"`
	Facts     shape.Facts     `json:"facts"`
	// Rank of the workload among those that wait for the gate.
	Rank ledger.Rank `json:"rank"`
	// Preceding is the waiting workload that is decided first among those that rank before and
	// might use the same devices.
	Preceding string `json:"preceding,omitempty"`
	// Decision of the gate at this moment.
	Decision Decision `json:"decision"`
	// Requirements of scope Fleet.
	Requirements []RequirementResult `json:"requirements,omitempty"`
	// SkippedRequirements do not apply: the job has no profile with the values that they use.
	SkippedRequirements []string             `json:"skippedRequirements,omitempty"`
	Clusters            []ClusterExplanation `json:"clusters,omitempty"`
	// Problem states why the explanation is incomplete, such as a failing query.
	Problem string `json:"problem,omitempty"`
	// Follower is true if the explaining replica is not the leader. Only the leader knows
	// the ledger and the decision.
	Follower bool `json:"follower,omitempty"`
}

// ClusterExplanation is the verdict on one candidate with the data behind it.
type ClusterExplanation struct {
	Verdict
	// Why states every broken rule, or "is eligible". The cluster's name precedes the
	// text.
	Why    string       `json:"why"`
	Broken []BrokenRule `json:"broken,omitempty"`
	// Scores by ScoreKey.
	Scores       map[string]Score    `json:"scores,omitempty"`
	Requirements []RequirementResult `json:"requirements,omitempty"`
	// Ledger holds the cluster's reservations, except those in its samples already.
	Ledger []ledger.Entry `json:"ledger,omitempty"`
	// Credited is the number of devices of workloads that finished after the last sample.
	Credited int64 `json:"credited,omitempty"`
}

// Explain decides as Decide does. In place of the decision's verdicts it returns, for each
// candidate, every broken rule and the data behind the verdict.
func Explain(f shape.Facts, candidates []Candidate, fleet Fleet, view ledger.View, rules Rules, attempt int, now time.Time) (Decision, []ClusterExplanation) {
	e := newEvaluation(f, candidates, fleet, rules, now)
	d := e.decide(candidates, fleet, view, attempt)
	clusters := make([]ClusterExplanation, len(candidates))
	for i, v := range d.Verdicts {
		clusters[i] = e.explain(&candidates[i], v, view)
	}
	e.explainOrder(d, clusters)
	d.Verdicts = nil
	return d, clusters
}

// explain evaluates room whenever the samples are fresh, even if another rule excludes the
// cluster. An unknown sample time is zero, and so never fresh.
func (e *evaluation) explain(c *Candidate, v Verdict, view ledger.View) ClusterExplanation {
	x := ClusterExplanation{
		Verdict:      v,
		Broken:       e.brokenRules(c, false),
		Scores:       c.Scores,
		Requirements: c.Requirements,
		Ledger:       view.Entries(c.Name, c.SampledAt),
	}
	if len(e.facts.PodSets) > 0 {
		x.Credited = view.Credited(c.Name, c.SampledAt, e.facts.PodSets[0])
		if e.now.Sub(c.SampledAt) <= e.rules.MaxSampleAge {
			x.Verdict = e.evaluateRoom(v.reject(BrokenRule{}), c, view)
			if x.Rejection != RejectNone {
				x.Broken = append(x.Broken, BrokenRule{x.Rejection, x.Detail})
			}
			x.Rejection, x.Detail = v.Rejection, v.Detail
		}
	}
	x.Why = x.Verdict.Why()
	if len(x.Broken) > 0 {
		var why []string
		for _, b := range x.Broken {
			why = append(why, x.reject(b).Why())
		}
		x.Why = strings.Join(why, ", ")
	}
	return x
}

// explainOrder adds to each cluster that can take the workload why another one comes first.
func (e *evaluation) explainOrder(d Decision, clusters []ClusterExplanation) {
	if len(d.Order) == 0 {
		return
	}
	tiers := map[string]int{}
	for i, tier := range tiersOf(d.Verdicts, float64(e.rules.TierPoints)) {
		for _, v := range tier {
			tiers[v.Cluster] = i
		}
	}
	first := d.Verdicts[slices.IndexFunc(d.Verdicts, func(v Verdict) bool { return v.Cluster == d.Order[0] })]
	for i, v := range d.Verdicts {
		if v.Rejection == RejectNone && v.Cluster != first.Cluster {
			clusters[i].Why += "; " + first.Cluster + " comes first: " + e.whyFirst(first, v, tiers[first.Cluster] != tiers[v.Cluster])
		}
	}
}

// whyFirst states why the first cluster comes before another one that can take the workload, in the order in which
// rank lets the criteria count.
func (e *evaluation) whyFirst(first, other Verdict, otherTier bool) string {
	isIncumbent := func(v Verdict) bool { return slices.Contains(e.rules.Incumbents, v.Cluster) }
	switch {
	case isIncumbent(first) && !isIncumbent(other):
		return "the workload is sent there already"
	case other.LacksQuota && !first.LacksQuota:
		return "it needs no preemption"
	case other.LacksQuota == first.LacksQuota && other.Excess > 0 && first.Excess <= 0:
		return "kube-state-metrics confirms its devices"
	case other.LacksQuota == first.LacksQuota && (other.Excess > 0) == (first.Excess > 0) && other.Slow && !first.Slow:
		return "workloads start faster there"
	case otherTier && other.Preference != first.Preference:
		return "the gate prefers it"
	case otherTier:
		return fmt.Sprintf("its score is higher by more than %d points", e.rules.TierPoints)
	}
	equal := ""
	if other.Score.Known && other.Score.Value > first.Score.Value {
		equal = fmt.Sprintf(" (scores within %d points count as equal)", e.rules.TierPoints)
	}
	if other.Net < first.Net {
		return fmt.Sprintf("of free devices, it has %g and this one %g", first.Net, other.Net) + equal
	}
	return "it was drawn, by the sizes of the clusters" + equal
}
