package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/config"
	"github.com/spf13/cobra"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
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

type preview struct {
	file, url, label string
	clusters         []string
}

func newPreview(a *app) *cobra.Command {
	var (
		out output
		p   preview
	)
	cmd := &cobra.Command{
		Use:   "preview -f POLICY --prometheus URL",
		Short: "What a ScoringPolicy would score now, without applying it",
		Long: `What a ScoringPolicy would score now, without applying it.

The clusters are those named by --clusters, else those of the hub that the policy
selects, else those that the answers name. Nothing is held or damped, as in a first
round, and nothing is written. Series are matched to clusters by name (--cluster-label):
what a MetricsSource maps otherwise is not read. Exit code 1 when a query failed.`,
		Args: exactly(0, "no arguments besides -f POLICY"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if p.file == "" || p.url == "" {
				return usageError{errors.New("name a policy's file with -f and a Prometheus with --prometheus")}
			}
			return p.run(cmd.Context(), a, &out)
		},
	}
	cmd.Flags().StringVarP(&p.file, "filename", "f", "", "file with one ScoringPolicy, or - for standard input")
	cmd.Flags().StringVar(&p.url, "prometheus", "", "URL of Prometheus or Thanos Query")
	cmd.Flags().StringVar(&p.label, "cluster-label", "cluster", "label by which series name clusters")
	cmd.Flags().StringSliceVar(&p.clusters, "clusters", nil, "names of clusters, instead of the hub's")
	out.add(cmd)
	return cmd
}

func (p *preview) run(ctx context.Context, a *app, out *output) error {
	content, err := a.read(p.file)
	if err != nil {
		return err
	}
	policy, err := policyIn(p.file, content)
	if err != nil {
		return err
	}
	source, err := query.New(query.Config{
		Name: "preview", URL: p.url, ClusterLabel: p.label, HTTP: config.DefaultHTTPClientConfig, Timeout: 30 * time.Second,
		MaxConcurrency: 4, QueriesPerSecond: 20, MaxResponseBytes: 64 << 20, MaxSeries: 100000,
	})
	if err != nil {
		return err
	}
	defer source.Close()
	req := round.Request{
		Spec: &policy.Spec, Policy: score.Compile(&policy.Spec), Querier: source,
		Info: query.SourceInfo{ClusterLabel: p.label}, Now: a.now(),
	}
	if req.Clusters, err = p.fleet(ctx, a, req); err != nil {
		return err
	}
	report := round.Run(ctx, req)
	rows := rowsOf(report.Result)
	err = out.print(a.Out, rows, func(w io.Writer) { printPreview(w, rows) })
	return errors.Join(err, failures(report))
}

// policyIn a file: exactly one, with scores.
func policyIn(file string, content []byte) (*v1alpha1.ScoringPolicy, error) {
	policy := &v1alpha1.ScoringPolicy{}
	if err := yaml.UnmarshalStrict(content, policy); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if policy.Kind != "ScoringPolicy" || len(policy.Spec.Scores) == 0 {
		return nil, fmt.Errorf("%s: must hold one ScoringPolicy with scores", file)
	}
	return policy, nil
}

// fleet of the command line, of the hub, or of the answers.
func (p *preview) fleet(ctx context.Context, a *app, req round.Request) ([]round.Cluster, error) {
	if len(p.clusters) > 0 {
		return named(p.clusters), nil
	}
	list := &clusterv1.ManagedClusterList{}
	c, _, err := a.connect()
	if err == nil {
		err = reading("ManagedClusters", c.List(ctx, list))
	}
	if err == nil {
		return round.Fleet(list.Items, req.Spec.ClusterSelector, req.Info)
	}
	_, _ = fmt.Fprintf(a.ErrOut, "clusters are those that the answers name: %v\n", err)
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
			if name := s.Labels[p.label]; name != "" {
				names = append(names, name)
			}
		}
	}
	return named(names), nil
}

func named(names []string) []round.Cluster {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	var fleet []round.Cluster
	for _, n := range slices.Sorted(maps.Keys(set)) {
		fleet = append(fleet, round.Cluster{Name: n, Key: n})
	}
	return fleet
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

func printPreview(w io.Writer, rows []previewed) {
	line(w, "CLUSTER", "SCORE", "VALUE", "RAW", "STATE", "ANSWER")
	for _, r := range rows {
		value, raw := "-", "-"
		if r.Value != nil {
			value = strconv.Itoa(int(*r.Value))
		}
		if r.Raw != nil {
			raw = strconv.FormatFloat(*r.Raw, 'g', 6, 64)
		}
		line(w, r.Cluster, r.Score, value, raw, r.State, r.Outcome)
	}
}

// failures of the questions, and answers that name no cluster.
func failures(report *round.Report) error {
	var errs []error
	asked := report.Scores
	if report.Freshness != nil {
		asked = append(slices.Clone(asked), *report.Freshness)
	}
	for _, q := range asked {
		name := q.Name
		if name == "" {
			name = "freshness"
		}
		switch {
		case q.Problems != nil:
			errs = append(errs, fmt.Errorf("%s: %s", name, promql.Strings(q.Problems)))
		case q.Err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", name, q.Err))
		}
	}
	return errors.Join(errs...)
}
