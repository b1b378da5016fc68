package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// previewed is one score of one cluster, as a first round would have it.
type previewed struct {
	Cluster string   `json:"cluster"`
	Score   string   `json:"score"`
	Value   *int32   `json:"value,omitempty"` // none: not published
	Points  float64  `json:"points"`
	Raw     *float64 `json:"raw,omitempty"`
	State   string   `json:"state"`
	Outcome string   `json:"outcome"`
}

func newPreview(a *app) *cobra.Command {
	var (
		out output
		q   asking
	)
	cmd := &cobra.Command{
		Use:   "preview -f POLICY --prometheus URL",
		Short: "What a ScoringPolicy would score now, without applying it",
		Long: `What a ScoringPolicy would score now, without applying it. Nothing is held or
damped, as in a first round, and nothing is written.

` + askingHelp + `

Exit code 1 when a query failed; what the others gave is told.`,
		Example: "  kubectl plimsoll preview -f policy.yaml --prometheus http://localhost:9090\n  kubectl plimsoll preview -f policy.yaml -f source.yaml -f secret.yaml",
		Args:    exactly(0, "no arguments besides -f POLICY"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.check(), q.check()); err != nil {
				return err
			}
			return q.preview(cmd.Context(), a, &out)
		},
	}
	q.add(cmd.Flags())
	completeSourceType(cmd)
	out.add(cmd)
	return cmd
}

func (q *asking) preview(ctx context.Context, a *app, out *output) error {
	t, err := q.open(a)
	if err != nil {
		return err
	}
	defer t.source.Close()
	req := round.Request{Spec: &t.policy.Spec, Policy: score.Compile(&t.policy.Spec), Querier: t.source, Now: a.now()}
	req.Clusters, _, err = q.fleet(ctx, a, t, func() ([]string, error) { return answered(ctx, req, t.info.ClusterLabel), nil })
	if err != nil {
		return err
	}
	if t.info.Partial {
		req.Contributions = &round.Contributions{}
	}
	report := round.Run(ctx, req)
	notes(a.ErrOut, report)
	rows := rowsOf(report.Result)
	err = out.print(a.Out, rows, func(w io.Writer) { printPreview(w, rows, out.wide()) })
	return errors.Join(err, failures(report))
}

// answered are the clusters that the scores' answers name.
func answered(ctx context.Context, req round.Request, label string) []string {
	var names []string
	for i := range req.Spec.Scores {
		expr := req.Spec.Scores[i].Query
		if promql.Check(expr) != nil {
			continue
		}
		answer, err := req.Querier.Query(ctx, expr, req.Now)
		if err != nil {
			continue // the round asks again and tells
		}
		for _, s := range answer.Samples {
			if name := s.Labels[label]; name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

func rowsOf(r *score.Result) []previewed {
	rows := []previewed{}
	for i, cluster := range r.Clusters {
		for s, cell := range r.Row(i) {
			row := previewed{Cluster: cluster, Score: r.Names[s], Points: cell.Points, State: cell.State.String(), Outcome: cell.Outcome.String()}
			if cell.State != score.Omitted {
				row.Value = &cell.Value
			}
			if cell.Outcome == score.OK && !math.IsNaN(cell.Raw) {
				row.Raw = &cell.Raw
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func printPreview(w io.Writer, rows []previewed, wide bool) {
	columns := []string{"CLUSTER", "SCORE", "VALUE", "RAW", "STATE", "ANSWER"}
	if wide {
		columns = slices.Insert(columns, 3, "POINTS")
	}
	line(w, columns...)
	for _, r := range rows {
		value, points, raw := "-", "-", "-"
		if r.Value != nil {
			value = strconv.Itoa(int(*r.Value))
		}
		if r.Outcome == score.OK.String() {
			points = strconv.FormatFloat(round1(r.Points), 'f', -1, 64)
		}
		if r.Raw != nil {
			raw = strconv.FormatFloat(*r.Raw, 'g', 6, 64)
		}
		cells := []string{r.Cluster, r.Score, value, raw, r.State, r.Outcome}
		if wide {
			cells = slices.Insert(cells, 3, points)
		}
		line(w, cells...)
	}
}

// notes that came with the answers.
func notes(w io.Writer, report *round.Report) {
	for _, q := range questions(report) {
		for _, text := range q.Warnings {
			_, _ = fmt.Fprintf(w, "warning: %s: %s\n", q.Name, text)
		}
		for _, text := range q.Infos {
			_, _ = fmt.Fprintf(w, "info: %s: %s\n", q.Name, text)
		}
	}
}

// questions of a round, with freshness under that name.
func questions(report *round.Report) []round.QueryReport {
	asked := slices.Clone(report.Scores)
	if f := report.Freshness; f != nil {
		named := *f
		named.Name = "freshness"
		asked = append(asked, named)
	}
	return asked
}

// failures of the questions, and answers that name no cluster.
func failures(report *round.Report) error {
	var errs []error
	for _, q := range questions(report) {
		switch {
		case q.Problems != nil:
			errs = append(errs, fmt.Errorf("%s: %s", q.Name, promql.Strings(q.Problems)))
		case q.Err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", q.Name, q.Err))
		}
	}
	return errors.Join(errs...)
}
