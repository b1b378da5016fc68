// Package preview shows the scores of a ScoringPolicy without applying it: the command preview.
package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/cli/ask"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/evaluation"
	"plimsoll.dev/plimsoll/operator/internal/cli/manifest"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
	"plimsoll.dev/plimsoll/operator/internal/whatif"
)

// New returns the command preview.
func New(a *command.App) *cobra.Command {
	var (
		out   command.OutputFlag
		flags evaluation.Flags
		jobs  ask.Question
	)
	cmd := &cobra.Command{
		Use:   "preview -f POLICY|GATE --prometheus URL",
		Short: "Show the scores of a ScoringPolicy, or the decisions of a PlacementGate, without applying it",
		Long: `Show the scores of a ScoringPolicy, or the decisions of a PlacementGate, without applying it. Nothing is
written.

Of a ScoringPolicy, preview evaluates a first round: scores are not kept and not damped.

` + evaluation.FlagsHelp + `

Of a PlacementGate, preview shows what it would decide about the job of --job, the workload of --workload,
or all workloads of the hub that wait for a cluster (--waiting).

` + ask.Help + `

The exit code is 1 if a query fails or matches no cluster. The scores of the other queries
are still printed.`,
		Example: "  kubectl plimsoll preview -f policy.yaml\n  kubectl plimsoll preview -f policy.yaml -f source.yaml -f secret.yaml\n  kubectl plimsoll preview -f gate.yaml --job job.yaml",
		Args:    command.ExactArgs(0, "no arguments besides -f POLICY or -f GATE"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.Check(), flags.Check()); err != nil {
				return err
			}
			m, err := flags.Read(a)
			if err != nil {
				return err
			}
			if asksJobs := len(jobs.JobFiles) > 0 || jobs.Workload != "" || jobs.Waiting; asksJobs || len(m.Gates) > 0 && len(m.Policies()) == 0 {
				jobs.Flags = flags
				return previewGate(cmd.Context(), a, &jobs, m, &out)
			}
			return preview(cmd.Context(), a, &flags, m, &out)
		},
	}
	flags.Add(cmd)
	cmd.Flags().StringSliceVar(&jobs.JobFiles, "job", nil, "files with jobs about which the gate of -f decides")
	cmd.Flags().StringVar(&jobs.Workload, "workload", "", "NAME of a Workload of the hub, or KIND/NAME of its job, about which the gate of -f decides")
	cmd.Flags().BoolVar(&jobs.Waiting, "waiting", false, "the gate of -f decides about all workloads of the hub that wait for a cluster")
	out.Add(cmd)
	return cmd
}

// previewGate shows what a gate decides about jobs.
func previewGate(ctx context.Context, a *command.App, jobs *ask.Question, m *manifest.Manifests, out *command.OutputFlag) error {
	switch {
	case len(m.Gates) == 0:
		return command.Usagef("pass a file with a PlacementGate to -f: it decides about the jobs")
	case len(jobs.JobFiles) == 0 && jobs.Workload == "" && !jobs.Waiting:
		return command.Usagef("a gate decides about jobs: set --job FILE, --workload NAME or --waiting")
	}
	answers, err := jobs.Answer(ctx, a, m)
	if err != nil {
		return err
	}
	report := ask.ReportOf(answers)
	if err := report.Print(a, out); err != nil {
		return err
	}
	if report.Worst() == whatif.Unknown {
		return command.ErrFindings
	}
	return nil
}

func preview(ctx context.Context, a *command.App, flags *evaluation.Flags, m *manifest.Manifests, out *command.OutputFlag) error {
	e, err := flags.Open(ctx, a, m)
	if err != nil {
		return err
	}
	defer e.Source.Client.Close()
	spec := &e.Policy.Spec
	responses := &responseRecorder{Querier: e.Source.Client}
	req := round.Request{Spec: spec, Policy: e.Compiled, Querier: responses, Now: a.Now()}
	req.Clusters, _, err = flags.SelectClusters(ctx, a, e, func() ([]string, error) { return listResultClusters(ctx, req, e.Source.Info.ClusterLabel) })
	if err != nil {
		return err
	}
	if req.Clusters.Len() == 0 {
		return fmt.Errorf("no query has a series with the label %q: aggregate by it, for example with sum by (%[1]s) (...), set another label with --cluster-label, or name the clusters with --clusters to see what the queries return", e.Source.Info.ClusterLabel)
	}
	if e.Source.Info.Partial {
		req.Contributions = &round.Contributions{}
	}
	report := round.Run(ctx, req)
	writeAnnotations(a.ErrOut, report)
	writeOutcomeHints(a.ErrOut, report.Result, e.Compiled.HasTotal, e.Source.Info.ClusterLabel)
	responses.writeForeignSeries(a.ErrOut, report, req.Clusters)
	rows := evaluation.Rows(report.Result)
	best := sortByRank(rows, report.Result.Names, e.Compiled.HasTotal)
	err = out.Print(a.Out, "PolicyPreview", rows, func(w io.Writer) { writePreview(w, a.Paint, rows, best, out.IsWide()) })
	return errors.Join(err, evaluation.QueryErrors(report))
}

// listResultClusters returns the clusters in the results of the queries of all scores. It
// ignores failed queries, unless no other query has a cluster: the round runs them again and
// reports the error.
func listResultClusters(ctx context.Context, req round.Request, label string) ([]string, error) {
	var (
		names []string
		errs  []error
	)
	for i := range req.Spec.Scores {
		expr := req.Spec.Scores[i].Query
		if promql.Check(expr) != nil {
			continue
		}
		result, err := req.Querier.Query(ctx, expr, req.Now)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", req.Spec.Scores[i].Name, err))
			continue
		}
		for _, s := range result.Samples {
			if name := s.Labels[label]; name != "" {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.Join(errs...)
	}
	return names, nil
}

// sortByRank sorts clusters by the score that ranks them, the best first, and returns the best one. Several scores without
// a total rank nothing: then it returns "".
func sortByRank(rows []evaluation.Row, names []string, hasTotal bool) (best string) {
	if !hasTotal && len(names) != 1 || len(rows) == 0 {
		return ""
	}
	ranks := map[string]int32{}
	for _, r := range rows {
		if r.Score == names[len(names)-1] {
			ranks[r.Cluster] = math.MinInt32
			if r.Value != nil {
				ranks[r.Cluster] = *r.Value
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b evaluation.Row) int { return cmp.Compare(ranks[b.Cluster], ranks[a.Cluster]) })
	if len(ranks) < 2 || ranks[rows[0].Cluster] == math.MinInt32 {
		return ""
	}
	return rows[0].Cluster
}

func writePreview(w io.Writer, paint format.Painter, rows []evaluation.Row, best string, wide bool) {
	columns := []string{"CLUSTER", "SCORE", "VALUE", "RAW", "STATE", "OUTCOME"}
	if wide {
		columns = slices.Insert(columns, 3, "POINTS")
	}
	format.Row(w, columns...)
	for i, r := range rows {
		points, raw := "-", "-"
		if r.Points != nil {
			points = format.Decimal(format.RoundTenth(*r.Points))
		}
		if r.Raw != nil {
			raw = format.Raw(*r.Raw)
		}
		outcome := r.Outcome
		if r.Cluster == best && (i == len(rows)-1 || rows[i+1].Cluster != best) { // the row of the score that ranks
			outcome = paint.Good(outcome + ", best")
		}
		cells := []string{r.Cluster, r.Score, format.Score(r.Value, "-"), raw, r.State, outcome}
		if wide {
			cells = slices.Insert(cells, 3, points)
		}
		format.Row(w, cells...)
	}
}

// writeAnnotations writes the warnings and infos of all queries of a round, and how many values
// normalization cut off. It leaves out what evaluation.QueryErrors reports.
func writeAnnotations(w io.Writer, report *round.Report) {
	for _, q := range evaluation.Queries(report) {
		reported := q.NameProblems()
		if q.NoMatch != nil {
			reported = append(reported, q.NoMatch.String())
		}
		for _, text := range q.Warnings {
			if problem, _ := strings.CutPrefix(text, "the query "); !slices.Contains(reported, problem) {
				_, _ = fmt.Fprintf(w, "warning: %s: %s\n", q.Name, text)
			}
		}
		for _, text := range q.Infos {
			_, _ = fmt.Fprintf(w, "info: %s: %s\n", q.Name, text)
		}
	}
	if n := report.Result.Clamped; n > 0 {
		_, _ = fmt.Fprintf(w, "warning: %s outside of the range of the score: the nearest end counts. Linear maps other values to the range, and range: Full allows points below 0\n", format.Plural(n, "value"))
	}
}

// outcomeHints say why a cluster has no usable value, and what to do. Errors report the other
// outcomes.
var outcomeHints = map[score.Outcome]string{
	score.Absent:    "no series. If clusters may lack it, set missing.absent",
	score.Duplicate: "several series. Aggregate them, as in sum by ($label) (...)",
	score.NaN:       "not a number, as 0 / 0 is",
	score.Infinite:  "infinite, as 1 / 0 is",
	score.Stale:     "the samples are too old, or of unknown age: see freshness",
}

// writeOutcomeHints writes for each score which clusters have no usable value, and why.
func writeOutcomeHints(w io.Writer, r *score.Result, hasTotal bool, label string) {
	names := r.Names
	if hasTotal {
		names = names[:len(names)-1] // the parts say why
	}
	for j, name := range names {
		clusters := map[score.Outcome][]string{}
		for i, cluster := range r.Clusters {
			cell := &r.Row(i)[j]
			clusters[cell.Outcome] = append(clusters[cell.Outcome], cluster)
		}
		for _, outcome := range slices.Sorted(maps.Keys(clusters)) {
			if hint := outcomeHints[outcome]; hint != "" {
				hint = strings.ReplaceAll(hint, "$label", label)
				_, _ = fmt.Fprintf(w, "info: %s: %s for %s: %s\n", name, outcome, format.Abbreviate(clusters[outcome]), hint)
			}
		}
	}
}
