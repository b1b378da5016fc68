package evaluation

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// Row is one score of one cluster in a first round. Value is nil if the score would
// not be published.
type Row struct {
	// Cluster is the name of the ManagedCluster.
	Cluster string `json:"cluster"`
	// Score is the name of the score, or of the total.
	Score string `json:"score"`
	// Value is the score that would be published, from -100 to 100.
	Value *int32 `json:"value,omitempty"`
	// Points are the normalized value before it is rounded.
	Points *float64 `json:"points,omitempty"`
	// Raw is what the query returns for the cluster.
	Raw *float64 `json:"raw,omitempty"`
	// State says where Value comes from, such as Scored, Worst or Omitted.
	State string `json:"state"`
	// Outcome says what the query returns for the cluster, such as OK, Absent or Stale. See operator/docs/scoring.md.
	Outcome string `json:"outcome"`
}

// Rows returns a row for each score of each cluster.
func Rows(r *score.Result) []Row {
	rows := []Row{}
	for i, cluster := range r.Clusters {
		for s, cell := range r.Row(i) {
			row := Row{Cluster: cluster, Score: r.Names[s], State: cell.State.String(), Outcome: cell.Outcome.String()}
			if cell.State != score.Omitted {
				row.Value = &cell.Value
			}
			if points, ok := cell.KnownPoints(); ok {
				row.Points = &points
			}
			if cell.Outcome == score.OK && !math.IsNaN(cell.Raw) {
				row.Raw = &cell.Raw
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// Queries returns the queries of all scores and of freshness, under round.FreshnessName.
func Queries(report *round.Report) []round.QueryReport {
	queries := slices.Clone(report.Scores)
	if report.Freshness != nil {
		freshness := *report.Freshness
		freshness.Name = round.FreshnessName
		queries = append(queries, freshness)
	}
	return queries
}

// QueryErrors joins the errors of all queries of a round.
func QueryErrors(report *round.Report) error {
	var errs []error
	for _, q := range Queries(report) {
		switch {
		case q.Problems != nil:
			errs = append(errs, fmt.Errorf("%s: %s", q.Name, promql.Strings(q.Problems)))
		case q.Err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", q.Name, q.Err))
		case q.NoMatch != nil:
			errs = append(errs, fmt.Errorf("%s: %s", q.Name, q.NoMatch))
		}
		for _, problem := range q.NameProblems() {
			errs = append(errs, fmt.Errorf("%s: %s", q.Name, problem))
		}
	}
	return errors.Join(append(errs, report.Result.TotalErr)...)
}
