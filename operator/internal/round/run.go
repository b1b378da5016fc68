package round

import (
	"context"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// Request is the input of a round.
type Request struct {
	Spec *v1alpha1.ScoringPolicySpec
	// Policy is compiled from Spec.
	Policy  *score.Policy
	Querier query.Querier
	// Clusters that the policy selects. They define the order of the results.
	Clusters *clustermap.Mapping
	// Previous is the result of the last round. It is nil in the first round.
	Previous *score.Result
	// Now is the evaluation time of every query.
	Now time.Time
	// Contributions of earlier rounds. Set it only for sources that may return
	// partial responses.
	Contributions *Contributions
}

// QueryReport describes one query of a policy and its response.
type QueryReport struct {
	// Name of the score, empty for the freshness query.
	Name     string
	Query    string
	Duration time.Duration
	// Series is the number of series in the response.
	Series   int
	Warnings []string
	Infos    []string
	// Problems are the parse errors of the query. Such a query is not sent.
	Problems []promql.Problem
	// Err is the failure of the query.
	Err error
}

// Report is the outcome of a round.
type Report struct {
	Result *score.Result
	// Scores are in the order of the spec.
	Scores []QueryReport
	// Freshness is nil if the policy has no freshness query.
	Freshness *QueryReport
	// Sent is the number of distinct queries that were sent.
	Sent int
}

// Run queries the source and evaluates the scores. It never fails as a whole: the
// Report contains the failure of each query, and the scores that depend on a failed
// query are treated as missing.
func Run(ctx context.Context, req Request) *Report {
	names := req.Clusters.Names()
	results := sendQueries(query.ForClusters(ctx, names), req)
	report := &Report{Sent: results.sent()}
	samples := score.Samples{Clusters: names}
	for i := range req.Spec.Scores {
		s := &req.Spec.Scores[i]
		queryReport, inputs := results.read(s.Query, req.Clusters)
		queryReport.Name = s.Name
		report.Scores = append(report.Scores, queryReport)
		samples.Scores = append(samples.Scores, inputs)
	}
	if f := req.Spec.Freshness; f != nil {
		queryReport, ages := results.read(f.Query, req.Clusters)
		report.Freshness = &queryReport
		samples.Age = applyFreshness(ages, samples.Scores, req.Policy.MaxAge)
	}
	report.Result = score.Evaluate(req.Policy, samples, req.Previous, req.Now)
	return report
}

// applyFreshness returns the sample age of each cluster. It replaces the usable values
// of a cluster by Stale if the age exceeds maxAge or is unknown, and by Failed or
// Invalid if the freshness query itself failed.
func applyFreshness(ages []score.Input, scores [][]score.Input, maxAge time.Duration) []time.Duration {
	durations := make([]time.Duration, len(ages))
	for cluster, age := range ages {
		outcome := age.Outcome
		switch outcome {
		case score.OK:
			durations[cluster] = time.Duration(max(age.Value, 0) * float64(time.Second))
			if age.Value > maxAge.Seconds() {
				outcome = score.Stale
			}
		case score.Failed, score.Invalid:
		default:
			outcome = score.Stale
		}
		if outcome == score.OK {
			continue
		}
		for i := range scores {
			if scores[i][cluster].Outcome == score.OK {
				scores[i][cluster] = score.Input{Outcome: outcome}
			}
		}
	}
	return durations
}
