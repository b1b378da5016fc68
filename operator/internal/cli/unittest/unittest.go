// Package unittest runs unit tests of ScoringPolicies: the command test.
package unittest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/evaluation"
	"plimsoll.dev/plimsoll/operator/internal/cli/manifest"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// testFile is a file with tests of one policy. Its paths are relative to the file.
type testFile struct {
	Policy    string     `json:"policy"`
	RuleFiles []string   `json:"ruleFiles"`
	Tests     []unitTest `json:"tests"`
}

// unitTest evaluates a first round over series that start at Unix time 0.
type unitTest struct {
	Name string `json:"name"`
	// Interval between samples, and between evaluations of the rules.
	Interval    model.Duration `json:"interval"`
	InputSeries []inputSeries  `json:"inputSeries"`
	// Clusters are scored in addition to those of Expect.
	Clusters []string       `json:"clusters"`
	EvalTime model.Duration `json:"evalTime"`
	// Expect holds published values by cluster and score. Null means not published.
	Expect map[string]map[string]*int32 `json:"expect"`
}

// inputSeries uses the notation of promtool: up{cluster="c1"} and 0+1x5.
type inputSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// testSuite is a decoded test file with its policy and rules.
type testSuite struct {
	tests  []unitTest
	policy *v1alpha1.ScoringPolicy
	rules  []promengine.Rule
}

// decoderPrefix is what the decoder writes before what is wrong.
var decoderPrefix = regexp.MustCompile(`^error (converting YAML to JSON|unmarshaling JSON): (while decoding JSON: )?(json|yaml): `)

// New returns the command test.
func New(a *command.App) *cobra.Command {
	var label string
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run unit tests of ScoringPolicies",
		Long: `Run unit tests of ScoringPolicies: Prometheus's own engine evaluates the policy over the
input series, and the scores are compared with the expected ones.

  policy: ../policy.yaml           # paths are relative to this file
  ruleFiles: [../recording.yaml]   # optional; recording rules, evaluated every interval
  tests:
  - name: half is free
    interval: 1m
    inputSeries:                   # as in promtool test rules; time starts at 0
    - {series: 'free{cluster="c1"}', values: '32x10'} # quoted, because YAML reads 0x10 as 16
    clusters: [c2]                 # optional; clusters in addition to those in expect
    evalTime: 10m
    expect: {c1: {headroom: 0}}    # null: not published

Each test is a first round: scores are not kept and not damped. The exit code is 1 if a score
differs.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("expected test files, got none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			var result error
			for _, file := range files {
				err := runTestFile(cmd.Context(), a, file, label)
				if err == nil {
					continue
				}
				result = command.ErrFindings
				if !errors.Is(err, command.ErrFindings) {
					_, _ = fmt.Fprintln(a.ErrOut, "error:", err)
				}
			}
			return result
		},
	}
	cmd.Flags().StringVar(&label, "cluster-label", "cluster", "label of a series that identifies its cluster")
	return cmd
}

// runTestFile runs the tests of a file and prints the result of each. It returns
// command.ErrFindings if a test fails.
func runTestFile(ctx context.Context, a *command.App, file, label string) error {
	suite, err := readTestFile(a, file)
	if err != nil {
		return err
	}
	for i := range suite.tests {
		t := &suite.tests[i]
		failures, runErr := t.run(ctx, &suite.policy.Spec, suite.rules, label)
		if runErr != nil {
			failures = append(failures, strings.Split(runErr.Error(), "\n")...)
		}
		if len(failures) == 0 {
			_, _ = fmt.Fprintf(a.Out, "ok    %s: %s\n", file, t.Name)
			continue
		}
		err = command.ErrFindings
		_, _ = fmt.Fprintf(a.Out, "FAIL  %s: %s\n", file, t.Name)
		for _, failure := range failures {
			_, _ = fmt.Fprintf(a.Out, "      %s\n", failure)
		}
	}
	return err
}

// readTestFile reads a test file and the policy and rules that the file refers to.
func readTestFile(a *command.App, file string) (*testSuite, error) {
	content, err := manifest.ReadFile(a, file)
	if err != nil {
		return nil, err
	}
	f := testFile{}
	if err := yaml.UnmarshalStrict(content, &f); err != nil {
		return nil, fmt.Errorf("%s: must be a test file: %s", file, decoderPrefix.ReplaceAllString(err.Error(), ""))
	}
	if f.Policy == "" || len(f.Tests) == 0 {
		return nil, fmt.Errorf("%s: must set policy and tests", file)
	}
	for i, t := range f.Tests {
		if t.Name == "" || t.Interval <= 0 || t.EvalTime <= 0 || len(t.Expect) == 0 {
			return nil, fmt.Errorf("%s: tests[%d]: must set name, interval, evalTime and expect", file, i)
		}
	}
	suite := &testSuite{tests: f.Tests}
	for _, path := range f.RuleFiles {
		content, err := manifest.ReadFile(a, relativeTo(file, path))
		if err != nil {
			return nil, err
		}
		rules, err := promengine.DecodeRules(path, content)
		if err != nil {
			return nil, err
		}
		suite.rules = append(suite.rules, rules...)
	}
	if content, err = manifest.ReadFile(a, relativeTo(file, f.Policy)); err != nil {
		return nil, err
	}
	m := manifest.New()
	if err := m.AddFile(f.Policy, content); err != nil {
		return nil, err
	}
	suite.policy, err = m.OnlyPolicy(f.Policy)
	return suite, err
}

// relativeTo returns a path that is relative to the folder of file.
func relativeTo(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// run evaluates the policy and returns the differences from the expected scores. An error
// means that the test can't be evaluated.
func (t *unitTest) run(ctx context.Context, spec *v1alpha1.ScoringPolicySpec, rules []promengine.Rule, label string) (differences []string, err error) {
	series, err := loadSeries(ctx, t, rules)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, series.Close()) }()
	spec, policy, err := round.Compile(spec, label)
	if err != nil {
		return nil, err
	}
	report := round.Run(ctx, round.Request{
		Spec: spec, Policy: policy, Previous: score.AssumeMatched(policy), Querier: query.QuerierFunc(series.query),
		Clusters: clustermap.FromNames(label, slices.AppendSeq(slices.Clone(t.Clusters), maps.Keys(t.Expect))), Now: time.Unix(0, 0).UTC().Add(time.Duration(t.EvalTime)),
	})
	return t.compare(evaluation.Rows(report.Result)), evaluation.QueryErrors(report)
}

// compare returns one message per score that differs from its expected value.
func (t *unitTest) compare(rows []evaluation.Row) []string {
	var differences []string
	for _, cluster := range slices.Sorted(maps.Keys(t.Expect)) {
		for _, name := range slices.Sorted(maps.Keys(t.Expect[cluster])) {
			want := format.Score(t.Expect[cluster][name], "none")
			i := slices.IndexFunc(rows, func(r evaluation.Row) bool { return r.Cluster == cluster && r.Score == name })
			if i < 0 {
				differences = append(differences, fmt.Sprintf("%s %s: the policy has no such score", cluster, name))
				continue
			}
			if got := format.Score(rows[i].Value, "none"); got != want {
				differences = append(differences, fmt.Sprintf("%s %s: want %s, got %s (%s)", cluster, name, want, got, describeRow(rows[i])))
			}
		}
	}
	return differences
}

// describeRow returns the state, the outcome and the raw value of a score.
func describeRow(r evaluation.Row) string {
	parts := []string{r.State, r.Outcome}
	if r.Raw != nil {
		parts = append(parts, "raw "+format.Raw(*r.Raw))
	}
	return strings.Join(parts, ", ")
}
