// Package backtest evaluates a ScoringPolicy over recorded history: the command backtest.
package backtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/evaluation"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// maxRounds of one backtest: five weeks at 30 s.
const maxRounds = 100_000

// backtestFlags are the flags of backtest.
type backtestFlags struct {
	evaluation.Flags
	since, step string
	rankScore   string
}

// timeGrid is the simulated time of a backtest: rounds at start and every step after.
type timeGrid struct {
	start  time.Time
	step   time.Duration
	rounds int
}

func (g timeGrid) at(i int) time.Time { return g.start.Add(time.Duration(i) * g.step) }
func (g timeGrid) end() time.Time     { return g.at(g.rounds - 1) }

// New returns the command backtest.
func New(a *command.App) *cobra.Command {
	var (
		out   command.OutputFlag
		flags = backtestFlags{Flags: evaluation.Flags{Connection: prometheus.Flags{Timeout: 2 * time.Minute}}}
	)
	cmd := &cobra.Command{
		Use:   "backtest -f POLICY --prometheus URL",
		Short: "Evaluate a ScoringPolicy over recorded metrics",
		Long: `Evaluate a ScoringPolicy over recorded metrics.

backtest evaluates one round per period of the policy, as the operator does: freshness,
keep times, damping, vetoes and refused rounds use the simulated time. If the source was down at
some time, the values of that time are missing. Rounds before the first sample are
excluded. Nothing is written.

` + evaluation.FlagsHelp + `

TREND divides the time into up to 42 slices and shows the mean of each; · stands for a slice
in which most rounds have no usable score. MIN, MEDIAN and MAX are those of the published
values. BEST is the share of rounds in which the cluster ranks first; the first by name wins
a tie, as in OCM. CHANGES/DAY counts new values, not renewals. -o wide shows every score. A
score with nameFrom has a row for each name that occurs at some time, and is missing at others.

The exit code is 1 if a query always fails or no query returns data.`,
		Example: "  kubectl plimsoll backtest -f policy.yaml --since 7d",
		Args:    command.ExactArgs(0, "no arguments besides -f POLICY"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.Check(), flags.Check()); err != nil {
				return err
			}
			report, err := flags.run(cmd.Context(), a)
			if err != nil {
				return err
			}
			return out.Print(a.Out, "BacktestReport", report, func(w io.Writer) { report.write(w, a.Paint, out.IsWide()) })
		},
	}
	flags.Add(cmd)
	cmd.Flags().StringVar(&flags.since, "since", "7d", "how far to go back, such as 36h or 7d")
	cmd.Flags().StringVar(&flags.step, "step", "", "time between rounds, such as 5m (default: the period of the policy)")
	cmd.Flags().StringVar(&flags.rankScore, "score", "", "score that ranks the clusters (default: the total, or the first score without a total)")
	out.Add(cmd)
	return cmd
}

func (f *backtestFlags) run(ctx context.Context, a *command.App) (*Report, error) {
	m, err := f.Read(a)
	if err != nil {
		return nil, err
	}
	e, err := f.Open(ctx, a, m)
	if err != nil {
		return nil, err
	}
	defer e.Source.Client.Close()
	policy := e.Compiled
	rank, err := rankName(&e.Policy.Spec, policy, f.rankScore)
	if err != nil {
		return nil, err
	}
	grid, err := f.grid(a, time.Duration(cmp.Or(e.Policy.Spec.PeriodSeconds, 30))*time.Second)
	if err != nil {
		return nil, err
	}
	exprs, err := expressionsOf(&e.Policy.Spec)
	if err != nil {
		return nil, err
	}
	clusters, fromResults, err := f.SelectClusters(ctx, a, e, func() ([]string, error) { return listRecordedClusters(ctx, e.Source, exprs, grid) })
	if err != nil {
		return nil, err
	}
	ctx = query.ForClusters(ctx, clusters.Names())
	history := newRangeCache(e.Source.Client, exprs, grid, clusters.Len(), a.Progress())
	defer history.progress.Clear()
	totals := newTotals(policy, rank, grid, clusters.Names())
	req := round.Request{
		Spec: &e.Policy.Spec, Policy: policy, Previous: score.AssumeMatched(policy), Querier: query.QuerierFunc(history.query), Clusters: clusters,
	}
	for i := range grid.rounds {
		if err := history.load(ctx, i); err != nil {
			return nil, fmt.Errorf("query recorded metrics: %w", err)
		}
		req.Now = grid.at(i)
		report := round.Run(ctx, req)
		history.addWarnings(report)
		if totals.addRound(i, report) {
			req.Previous = report.Result
		}
	}
	history.progress.Clear()
	history.writeWarnings(a.ErrOut)
	if !totals.started {
		return nil, fmt.Errorf("no cluster has data between %s and %s: check that %s has metrics of this time, and that the label %q of its series identifies clusters",
			format.Time(grid.start), format.Time(grid.end()), e.Source.Address(), e.Source.Info.ClusterLabel)
	}
	if totals.scores[rank] == nil {
		return nil, fmt.Errorf("no round has the score %s: --score must be one of %s", rank, strings.Join(totals.names, ", "))
	}
	return totals.report(e.Policy, fromResults), nil
}

// rankName returns the score that ranks the clusters. Without a name, it is the total, or the
// first score if the policy has no total.
func rankName(spec *v1alpha1.ScoringPolicySpec, p *score.Policy, name string) (string, error) {
	if name == "" && p.HasTotal {
		return p.Names[len(p.Names)-1], nil
	}
	if name == "" && spec.Scores[0].NameFrom == nil {
		return p.Names[0], nil
	}
	given := func(s v1alpha1.ScoreSpec) bool { return givesName(&s, name) }
	if !slices.ContainsFunc(spec.Scores, given) && (!p.HasTotal || name != p.Names[len(p.Names)-1]) {
		names := slices.Clone(p.Names)
		for i := range spec.Scores {
			if spec.Scores[i].NameFrom != nil {
				names[i] += "-VALUE"
			}
		}
		if name == "" {
			return "", command.Usagef("--score must be set, because the names of the first score vary: one of %s", strings.Join(names, ", "))
		}
		return "", command.Usagef("--score must be one of %s, not %q", strings.Join(names, ", "), name)
	}
	return name, nil
}

// grid returns the simulated time that the flags request. If the period of the policy
// gives more than maxRounds, the step is a multiple of the period, and grid says so on
// standard error. A --step that gives more than maxRounds is an error.
func (f *backtestFlags) grid(a *command.App, period time.Duration) (timeGrid, error) {
	since, err := model.ParseDuration(f.since)
	if err != nil {
		return timeGrid{}, command.Usagef("--since: %w", err)
	}
	step, length := period, time.Duration(since)
	if f.step != "" {
		d, err := model.ParseDuration(f.step)
		if err != nil {
			return timeGrid{}, command.Usagef("--step: %w", err)
		}
		step = time.Duration(d)
	}
	switch rounds := length / max(step, 1); {
	case step < time.Second:
		return timeGrid{}, command.Usagef("--step must be at least 1s")
	case rounds < 1:
		return timeGrid{}, command.Usagef("--since %s is shorter than a step of %s", f.since, model.Duration(step))
	case rounds < maxRounds:
	case f.step != "":
		return timeGrid{}, command.Usagef("--since %s with --step %s needs %d rounds, at most %d are allowed: set --step to %s or more",
			f.since, f.step, rounds, maxRounds, model.Duration(shortestStep(length, time.Second)))
	default:
		step = shortestStep(length, period)
		_, _ = fmt.Fprintf(a.ErrOut, "using a step of %s instead of the policy's period of %s: --since %s would need %d rounds, at most %d are allowed\n",
			model.Duration(step), model.Duration(period), f.since, rounds, maxRounds)
	}
	n := int(length/step) + 1
	end := a.Now().UTC().Truncate(step)
	return timeGrid{start: end.Add(-time.Duration(n-1) * step), step: step, rounds: n}, nil
}

// shortestStep returns the shortest multiple of unit that divides length into less than
// maxRounds.
func shortestStep(length, unit time.Duration) time.Duration {
	return (length/(maxRounds-1)/unit + 1) * unit
}

// expressionsOf returns the distinct expressions of the policy. An invalid expression is an
// error here, while a round only leaves its score out.
func expressionsOf(spec *v1alpha1.ScoringPolicySpec) ([]expression, error) {
	var (
		exprs []expression
		errs  []error
	)
	add := func(name, expr string) {
		if p := append(promql.Check(expr), promql.Pinned(expr)...); p != nil {
			errs = append(errs, fmt.Errorf("%s: %s", name, promql.Strings(p)))
		} else if !slices.ContainsFunc(exprs, func(known expression) bool { return known.text == expr }) {
			exprs = append(exprs, expression{name: name, text: expr})
		}
	}
	for i := range spec.Scores {
		add(spec.Scores[i].Name, spec.Scores[i].Query)
	}
	if spec.Freshness != nil {
		add(round.FreshnessName, spec.Freshness.Query)
	}
	return exprs, errors.Join(errs...)
}

// listRecordedClusters returns the clusters in the series that the expressions select.
func listRecordedClusters(ctx context.Context, source *prometheus.Source, exprs []expression, grid timeGrid) ([]string, error) {
	var selectors []string
	for _, expr := range exprs {
		selectors = append(selectors, promql.Selectors(expr.text)...)
	}
	slices.Sort(selectors)
	names, err := source.Client.LabelValues(ctx, source.Info.ClusterLabel, slices.Compact(selectors), grid.start, grid.end())
	if err != nil {
		return nil, fmt.Errorf("query the names of recorded clusters: %w", err)
	}
	return names, nil
}
