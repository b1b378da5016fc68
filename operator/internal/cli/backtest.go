package cli

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

	"plimsoll.dev/plimsoll/operator/internal/dial"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// mostRounds of one backtest: five weeks at 30 s.
const mostRounds = 100_000

// backtest are the flags of the command.
type backtest struct {
	asking
	since, step string
	rank        string
}

// span of simulated time: rounds from start on, one every step.
type span struct {
	start  time.Time
	step   time.Duration
	rounds int
}

func (s span) at(i int) time.Time { return s.start.Add(time.Duration(i) * s.step) }
func (s span) end() time.Time     { return s.at(s.rounds - 1) }

func newBacktest(a *app) *cobra.Command {
	var (
		out output
		b   = backtest{asking: asking{timeout: 2 * time.Minute}}
	)
	cmd := &cobra.Command{
		Use:   "backtest -f POLICY --prometheus URL",
		Short: "What a ScoringPolicy would have scored over recorded history",
		Long: `What a ScoringPolicy would have scored over recorded history.

One round is evaluated for each of the policy's periods, as the operator evaluates
it: freshness, hold, damping, vetoes and refused rounds work in simulated time. A time
at which the source itself was down shows as missing values. Rounds before the first
answer are left out. Nothing is written.

` + askingHelp + `

TREND is the mean of each of up to 42 slices of the time, and · where no usable score
was published in most of a slice. MIN, MEDIAN and MAX are of what was published. BEST is
how long a cluster was the one that its score ranks first; of equals the first by name is, as
for OCM. CHANGES counts new values, without renewals. -o wide tells every score.

Exit code 1 when a query failed throughout or nothing answered.`,
		Example: "  kubectl plimsoll backtest -f policy.yaml --prometheus http://localhost:9090 --since 7d",
		Args:    exactly(0, "no arguments besides -f POLICY"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.check(), b.check()); err != nil {
				return err
			}
			report, err := b.run(cmd.Context(), a)
			if err != nil {
				return err
			}
			return out.print(a.Out, report, func(w io.Writer) { report.write(w, a.paint, out.wide()) })
		},
	}
	b.add(cmd.Flags())
	completeSourceType(cmd)
	cmd.Flags().StringVar(&b.since, "since", "7d", "how far to go back, such as 36h or 7d")
	cmd.Flags().StringVar(&b.step, "step", "", "time between rounds instead of the policy's period, such as 5m")
	cmd.Flags().StringVar(&b.rank, "score", "", "score that ranks the clusters, instead of the total or the first one")
	out.add(cmd)
	return cmd
}

func (b *backtest) run(ctx context.Context, a *app) (*backtestReport, error) {
	t, err := b.open(a)
	if err != nil {
		return nil, err
	}
	defer t.source.Close()
	policy := score.Compile(&t.policy.Spec)
	rank, err := rankedBy(policy, b.rank)
	if err != nil {
		return nil, err
	}
	over, err := b.span(a, time.Duration(cmp.Or(t.policy.Spec.PeriodSeconds, 30))*time.Second)
	if err != nil {
		return nil, err
	}
	exprs, err := expressionsOf(t)
	if err != nil {
		return nil, err
	}
	fleet, fromAnswers, err := b.fleet(ctx, a, t, func() ([]string, error) { return t.seen(ctx, exprs, over) })
	if err != nil {
		return nil, err
	}
	ctx = query.ForClusters(ctx, fleet.Names())
	h := newHistory(t.source, exprs, over, fleet.Len(), a.progress())
	defer h.progress.clear()
	totals := newTotals(policy, rank, over, fleet.Names())
	req := round.Request{Spec: &t.policy.Spec, Policy: policy, Querier: query.Func(h.query), Clusters: fleet}
	for i := range over.rounds {
		if err := h.reach(ctx, i); err != nil {
			return nil, fmt.Errorf("ask for history: %w", err)
		}
		req.Now = over.at(i)
		report := round.Run(ctx, req)
		h.note(report)
		if totals.add(i, report) {
			req.Previous = report.Result
		}
	}
	h.progress.clear()
	h.tell(a.ErrOut)
	if !totals.begun {
		return nil, fmt.Errorf("no cluster answered between %s and %s: does %s hold that history, and do series name clusters by %q?",
			moment(over.start), moment(over.end()), t.where(), t.info.ClusterLabel)
	}
	return totals.report(t.policy, fromAnswers), nil
}

// rankedBy is the index of the score that ranks.
func rankedBy(p *score.Policy, name string) (int, error) {
	if name == "" {
		if p.HasTotal {
			return len(p.Names) - 1, nil
		}
		return 0, nil
	}
	i := slices.Index(p.Names, name)
	if i < 0 {
		return 0, usagef("--score must be one of %s, not %q", strings.Join(p.Names, ", "), name)
	}
	return i, nil
}

// span that the flags ask for. A period too short for it is widened, and told; a
// step of the user's is refused.
func (b *backtest) span(a *app, period time.Duration) (span, error) {
	since, err := model.ParseDuration(b.since)
	if err != nil {
		return span{}, usagef("--since: %w", err)
	}
	step, length := period, time.Duration(since)
	if b.step != "" {
		d, err := model.ParseDuration(b.step)
		if err != nil {
			return span{}, usagef("--step: %w", err)
		}
		step = time.Duration(d)
	}
	switch rounds := length / max(step, 1); {
	case step < time.Second:
		return span{}, usagef("--step must be at least 1s")
	case rounds < 1:
		return span{}, usagef("--since %s is shorter than a step of %s", b.since, model.Duration(step))
	case rounds < mostRounds:
	case b.step != "":
		return span{}, usagef("--since %s by --step %s are %d rounds, at most %d are possible: a step of %s is", b.since, b.step, rounds, mostRounds, model.Duration(widened(length, time.Second)))
	default:
		step = widened(length, period)
		_, _ = fmt.Fprintf(a.ErrOut, "stepping by %s instead of the policy's %s: %s would be %d rounds, at most %d are possible\n",
			model.Duration(step), model.Duration(period), b.since, rounds, mostRounds)
	}
	n := int(length/step) + 1
	end := a.now().UTC().Truncate(step)
	return span{start: end.Add(-time.Duration(n-1) * step), step: step, rounds: n}, nil
}

// widened is the shortest multiple of unit that makes few enough rounds.
func widened(length, unit time.Duration) time.Duration {
	return (length/(mostRounds-1)/unit + 1) * unit
}

// expressionsOf a policy that can be asked, each once. Those that don't parse are
// errors here: a whole history without them would be of no use.
func expressionsOf(t *trial) ([]expression, error) {
	var (
		exprs []expression
		errs  []error
	)
	add := func(name, expr string) {
		if p := append(promql.Check(expr), promql.Pinned(expr)...); p != nil {
			errs = append(errs, fmt.Errorf("%s: %s", name, promql.Strings(p)))
		} else if !slices.ContainsFunc(exprs, func(e expression) bool { return e.text == expr }) {
			exprs = append(exprs, expression{name: name, text: expr})
		}
	}
	for i := range t.policy.Spec.Scores {
		add(t.policy.Spec.Scores[i].Name, t.policy.Spec.Scores[i].Query)
	}
	if f := t.policy.Spec.Freshness; f != nil {
		add("freshness", f.Query)
	}
	return exprs, errors.Join(errs...)
}

// where a trial asks.
func (t *trial) where() string {
	if dial.PerCluster(t.spec) {
		return t.spec.Topology.URLTemplate
	}
	return t.spec.URL
}

// seen are the clusters that the series of the expressions name.
func (t *trial) seen(ctx context.Context, exprs []expression, over span) ([]string, error) {
	var selectors []string
	for _, e := range exprs {
		selectors = append(selectors, promql.Selectors(e.text)...)
	}
	slices.Sort(selectors)
	names, err := t.source.LabelValues(ctx, t.info.ClusterLabel, slices.Compact(selectors), over.start, over.end())
	if err != nil {
		return nil, fmt.Errorf("ask which clusters there were: %w", err)
	}
	return names, nil
}
