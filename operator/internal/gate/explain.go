package gate

import (
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// Explanation of one workload: why it is where it is, or what it waits for.
type Explanation struct {
	Workload string `json:"workload"`
	Gate     string `json:"gate,omitempty"`
	// Check is our entry as it stands on the workload.
	State   string `json:"state,omitempty"`
	Message string `json:"message,omitempty"`
	// WaitsFor says in one sentence what has to happen next.
	WaitsFor  string          `json:"waitsFor"`
	Cluster   string          `json:"cluster,omitempty"`
	Nominated []string        `json:"nominated,omitempty"`
	Dispatch  dispatch.Record `json:"dispatch"`
	Facts     shape.Facts     `json:"facts"`
	Decision  Decision        `json:"decision"`
	// Conditions of scope Fleet.
	Conditions []ConditionResult    `json:"conditions,omitempty"`
	Clusters   []ClusterExplanation `json:"clusters,omitempty"`
	// Problem of the metrics source.
	Problem string `json:"problem,omitempty"`
	// Follower: a replica tells it that does not lead, and so knows of no decision.
	Follower bool `json:"follower,omitempty"`
}

// Broken is one rule that keeps a candidate out.
type BrokenRule struct {
	Rejection Rejection `json:"out"`
	// Detail completes Out as in a Verdict.
	Detail string `json:"detail,omitempty"`
}

// ClusterExplanation is one candidate.
type ClusterExplanation struct {
	Verdict
	// Why it is in, or every rule that keeps it out.
	Why    string       `json:"why"`
	Broken []BrokenRule `json:"broken,omitempty"`
	// Scores by ScoreKey.
	Scores     map[string]Score  `json:"scores,omitempty"`
	Conditions []ConditionResult `json:"conditions,omitempty"`
	// Ledger entries that stand against the cluster.
	Ledger []ledger.Entry `json:"ledger,omitempty"`
	// Credited devices came free since the sample; they count in Net alone.
	Credited int64 `json:"credited,omitempty"`
}

// Explain decides as Decide does, and tells of each candidate what stands behind
// its verdict.
func Explain(f shape.Facts, candidates []Candidate, fleet Fleet, view ledger.View, rules Rules, attempt int, now time.Time) (Decision, []ClusterExplanation) {
	d := Decide(f, candidates, fleet, view, rules, attempt, now)
	rules = rules.failClosedWhileRecent(fleet, now)
	open := nothingKnown(candidates, rules, now)
	clusters := make([]ClusterExplanation, len(candidates))
	for i, v := range d.Verdicts {
		clusters[i] = explain(f, &candidates[i], v, view, rules, open, now)
	}
	d.Verdicts = nil
	return d, clusters
}

// explain a verdict. Room is told wherever the samples allow, also where something
// else rules the cluster out.
func explain(f shape.Facts, c *Candidate, v Verdict, view ledger.View, rules Rules, open bool, now time.Time) ClusterExplanation {
	e := ClusterExplanation{Verdict: v, Scores: c.Scores, Conditions: c.Conditions, Ledger: view.Entries(c.Name, c.SampledAt)}
	brokenRules(f, c, rules, open, now, func(out Rejection, detail string) bool {
		e.Broken = append(e.Broken, BrokenRule{Rejection: out, Detail: detail})
		return true
	})
	if len(f.PodSets) > 0 {
		e.Credited = view.Credited(c.Name, c.SampledAt, f.PodSets[0])
		if !c.SampledAt.IsZero() && now.Sub(c.SampledAt) <= rules.MaxSampleAge {
			e.Verdict = evaluateRoom(v.reject(RejectNone, ""), f, c, view, rules)
			if e.Rejection != RejectNone {
				e.Broken = append(e.Broken, BrokenRule{Rejection: e.Rejection, Detail: e.Detail})
			}
			e.Rejection, e.Detail = v.Rejection, v.Detail
		}
	}
	var why []string
	for _, b := range e.Broken {
		why = append(why, e.reject(b.Rejection, b.Detail).Why())
	}
	if e.Why = strings.Join(why, ", "); e.Why == "" {
		e.Why = e.Verdict.Why()
	}
	return e
}
