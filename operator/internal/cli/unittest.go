package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// testFile is a file of tests of one policy. Its paths are relative to it.
type testFile struct {
	Policy    string     `json:"policy"`
	RuleFiles []string   `json:"ruleFiles"`
	Tests     []unitTest `json:"tests"`
}

// unitTest is one first round over series that start at Unix time 0.
type unitTest struct {
	Name        string         `json:"name"`
	Interval    model.Duration `json:"interval"` // between samples, and evaluations of rules
	InputSeries []inputSeries  `json:"inputSeries"`
	Clusters    []string       `json:"clusters"` // besides those in expect
	EvalTime    model.Duration `json:"evalTime"`
	// Expect holds published values by cluster and score; null: not published.
	Expect map[string]map[string]*int32 `json:"expect"`
}

// inputSeries are in the notation of promtool: up{cluster="c1"} and 0+1x5.
type inputSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

func newUnitTest(a *app) *cobra.Command {
	var label string
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Unit tests of ScoringPolicies: series in, scores out",
		Long: `Unit tests of ScoringPolicies: series in, scores out, evaluated by Prometheus's own engine.

  policy: ../policy.yaml           # paths are relative to this file
  ruleFiles: [../recording.yaml]   # optional; recording rules, evaluated every interval
  tests:
  - name: half is free
    interval: 1m
    inputSeries:                   # as for promtool test rules; time starts at 0
    - {series: 'free{cluster="c1"}', values: '32x10'} # quoted, for YAML reads 0x10 as 16
    clusters: [c2]                 # optional; clusters besides those in expect
    evalTime: 10m
    expect: {c1: {headroom: 0}}    # null: not published

Each test is a first round: nothing is held or damped. Exit code 1 when a score differs.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("expected files of tests, got none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			var found error
			for _, file := range files {
				err := a.unitTest(cmd.Context(), file, label)
				if err == nil {
					continue
				}
				found = errFindings
				if !errors.Is(err, errFindings) {
					_, _ = fmt.Fprintln(a.ErrOut, "error:", err)
				}
			}
			return found
		},
	}
	cmd.Flags().StringVar(&label, "cluster-label", "cluster", "label by which series name clusters")
	return cmd
}

// unitTest runs a file's tests and prints what came of each. errFindings: some differ.
func (a *app) unitTest(ctx context.Context, file, label string) error {
	tests, policy, rules, err := a.readTests(file)
	if err != nil {
		return err
	}
	for i := range tests {
		t := &tests[i]
		differ, runErr := t.run(ctx, &policy.Spec, rules, label)
		if runErr != nil {
			differ = append(differ, strings.Split(runErr.Error(), "\n")...)
		}
		if len(differ) == 0 {
			_, _ = fmt.Fprintf(a.Out, "ok    %s: %s\n", file, t.Name)
			continue
		}
		err = errFindings
		_, _ = fmt.Fprintf(a.Out, "FAIL  %s: %s\n", file, t.Name)
		for _, d := range differ {
			_, _ = fmt.Fprintf(a.Out, "      %s\n", d)
		}
	}
	return err
}

func (a *app) readTests(file string) ([]unitTest, *v1alpha1.ScoringPolicy, []rule, error) {
	content, err := a.read(file)
	if err != nil {
		return nil, nil, nil, err
	}
	f := testFile{}
	if err := yaml.UnmarshalStrict(content, &f); err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	if f.Policy == "" || len(f.Tests) == 0 {
		return nil, nil, nil, fmt.Errorf("%s: must name a policy and hold tests", file)
	}
	for i, t := range f.Tests {
		if t.Name == "" || t.Interval <= 0 || t.EvalTime <= 0 || len(t.Expect) == 0 {
			return nil, nil, nil, fmt.Errorf("%s: tests[%d]: set name, interval, evalTime and expect", file, i)
		}
	}
	beside := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(filepath.Dir(file), path)
	}
	var rules []rule
	for _, path := range f.RuleFiles {
		content, err := a.read(beside(path))
		if err != nil {
			return nil, nil, nil, err
		}
		more, err := rulesIn(path, content)
		if err != nil {
			return nil, nil, nil, err
		}
		rules = append(rules, more...)
	}
	if content, err = a.read(beside(f.Policy)); err != nil {
		return nil, nil, nil, err
	}
	policy, err := policyIn(content)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", f.Policy, err)
	}
	return f.Tests, policy, rules, nil
}

// run the test and tell what differs from what it expects.
func (t *unitTest) run(ctx context.Context, spec *v1alpha1.ScoringPolicySpec, rules []rule, label string) (differ []string, err error) {
	s, err := load(ctx, t, rules)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	report := round.Run(ctx, round.Request{
		Spec: spec, Policy: score.Compile(spec), Querier: query.Func(s.query),
		Clusters: clustermap.FromNames(label, slices.AppendSeq(slices.Clone(t.Clusters), maps.Keys(t.Expect))), Now: time.Unix(0, 0).UTC().Add(time.Duration(t.EvalTime)),
	})
	return t.compare(rowsOf(report.Result)), failures(report)
}

func (t *unitTest) compare(rows []previewed) []string {
	var differ []string
	for _, cluster := range slices.Sorted(maps.Keys(t.Expect)) {
		for _, name := range slices.Sorted(maps.Keys(t.Expect[cluster])) {
			want := t.Expect[cluster][name]
			i := slices.IndexFunc(rows, func(r previewed) bool { return r.Cluster == cluster && r.Score == name })
			if i < 0 {
				differ = append(differ, fmt.Sprintf("%s %s: the policy has no such score", cluster, name))
				continue
			}
			if r := rows[i]; published(r.Value) != published(want) {
				differ = append(differ, fmt.Sprintf("%s %s: want %s, got %s (%s)", cluster, name, published(want), published(r.Value), why(r)))
			}
		}
	}
	return differ
}

func published(value *int32) string {
	if value == nil {
		return "none"
	}
	return strconv.Itoa(int(*value))
}

func why(r previewed) string {
	told := []string{r.State, r.Outcome}
	if r.Raw != nil {
		told = append(told, "raw "+strconv.FormatFloat(*r.Raw, 'g', 6, 64))
	}
	return strings.Join(told, ", ")
}
