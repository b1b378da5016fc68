package ask

import (
	"context"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/cli/evaluation"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// AddScores adds the scores of a first round of a policy to those of the clusters.
func AddScores(ctx context.Context, scores map[string]map[string]gate.Score, policy *v1alpha1.ScoringPolicy, source query.Querier, label string, clusters []string, now time.Time) error {
	spec, compiled, err := round.Compile(&policy.Spec, label)
	if err != nil {
		return err
	}
	report := round.Run(ctx, round.Request{Spec: spec, Policy: compiled, Previous: score.AssumeMatched(compiled), Querier: source, Now: now, Clusters: clustermap.FromNames(label, clusters)})
	if err := evaluation.QueryErrors(report); err != nil {
		return err
	}
	for i, cluster := range report.Result.Clusters {
		if scores[cluster] == nil {
			scores[cluster] = map[string]gate.Score{}
		}
		for j, cell := range report.Result.Row(i) {
			if cell.State != score.Omitted {
				scores[cluster][gate.ScoreKey(policy.Name, report.Result.Names[j])] = gate.Score{Value: cell.Value, Written: now, ValidUntil: now.Add(time.Hour)}
			}
		}
	}
	return nil
}
