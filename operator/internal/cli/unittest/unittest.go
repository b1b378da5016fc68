// Package unittest runs unit tests of ScoringPolicies and PlacementGates: the command test.
package unittest

import (
	"cmp"
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
	"plimsoll.dev/plimsoll/operator/internal/whatif"
)

// testFile is a file with tests of a policy, of a gate, or of a gate with the policy that ranks its clusters. Its paths are
// relative to the file.
type testFile struct {
	Policy    string     `json:"policy"`
	Gate      string     `json:"gate"`
	RuleFiles []string   `json:"ruleFiles"`
	Tests     []unitTest `json:"tests"`
}

// unitTest evaluates a first round, and the decisions about jobs, over series that start at Unix time 0.
type unitTest struct {
	Name string `json:"name"`
	// Interval between samples, and between evaluations of the rules. Default 1m.
	Interval    model.Duration `json:"interval"`
	InputSeries []inputSeries  `json:"inputSeries"`
	// Clusters are scored in addition to those of Expect, and are those that a gate may choose from.
	Clusters []string       `json:"clusters"`
	EvalTime model.Duration `json:"evalTime"`
	// Expect holds published values by cluster and score. Null means not published.
	Expect map[string]map[string]*int32 `json:"expect"`
	// Jobs are submitted one after the other.
	Jobs []expectedJob `json:"jobs"`
}

// outcomes of a job.
var outcomes = []whatif.Outcome{whatif.Now, whatif.Later, whatif.Never, whatif.Unknown}

// problem says which expectation of the test is not tested; empty = none.
func (t *unitTest) problem(hasPolicy, hasGate bool) string {
	switch {
	case !hasPolicy && len(t.Expect) > 0:
		return "expect needs policy: a gate has no scores"
	case !hasGate && len(t.Jobs) > 0:
		return "jobs needs gate: a policy decides about no job"
	}
	for i := range t.Jobs {
		if o := t.Jobs[i].Outcome; !slices.Contains(outcomes, o) {
			return fmt.Sprintf("jobs[%d].outcome must be one of Now, Later, Never, Unknown, not %q", i, o)
		}
	}
	return ""
}

// missing names the fields that the test lacks; empty = none.
func (t *unitTest) missing(hasGate bool) []string {
	var names []string
	if t.EvalTime <= 0 {
		names = append(names, "evalTime")
	}
	if hasGate && len(t.Jobs) == 0 {
		names = append(names, "jobs")
	}
	if hasGate && len(t.Clusters) == 0 {
		names = append(names, "clusters")
	}
	if !hasGate && len(t.Expect) == 0 {
		names = append(names, "expect")
	}
	for i := range t.Jobs {
		if len(t.Jobs[i].Job) == 0 {
			names = append(names, fmt.Sprintf("jobs[%d].job", i))
		}
		if t.Jobs[i].Outcome == "" {
			names = append(names, fmt.Sprintf("jobs[%d].outcome", i))
		}
	}
	return names
}

// inputSeries uses the notation of promtool: up{cluster="c1"} and 0+1x5.
type inputSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// testSuite is a decoded test file with its policy, gate and rules.
type testSuite struct {
	file   string
	tests  []unitTest
	policy *v1alpha1.ScoringPolicy // nil = none
	gate   *v1alpha1.PlacementGate // nil = none
	rules  []promengine.Rule
	label  string
}

// decoderPrefix is what the decoder writes before what is wrong.
var decoderPrefix = regexp.MustCompile(`^error (converting YAML to JSON|unmarshaling JSON): (while decoding JSON: )?(json|yaml): `)

// New returns the command test.
func New(a *command.App) *cobra.Command {
	var label, output string
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run unit tests of ScoringPolicies and PlacementGates",
		Long: `Run unit tests of ScoringPolicies and PlacementGates: Prometheus's own engine evaluates their queries
over the input series, and scores and decisions are compared with the expected ones.

  policy: ../policy.yaml           # paths are relative to this file
  ruleFiles: [../recording.yaml]   # optional; recording rules, evaluated every interval
  tests:
  - name: half is free
    interval: 1m                   # default
    inputSeries:                   # as in promtool test rules; time starts at 0
    - {series: 'free{cluster="c1"}', values: '32x10'} # quoted, because YAML reads 0x10 as 16
    clusters: [c2]                 # optional; clusters in addition to those in expect
    evalTime: 10m
    expect: {c1: {headroom: 0}}    # null: not published

A gate decides about jobs, one after the other. A policy in the same file ranks its clusters:

  gate: ../gate.yaml
  policy: ../policy.yaml           # optional
  tests:
  - name: the drained cluster takes nothing
    inputSeries: [...]
    clusters: [c1, c2]             # those that the gate may choose from
    evalTime: 10m
    jobs:
    - job: jobs/train.yaml         # or the manifest itself
      outcome: Now                 # Now, Later, Never or Unknown, as fit prints them
      cluster: c1                  # optional; as are reason, and why, a part of the message

Each test is a first round: scores are not kept and not damped. The exit code is 1 if a score or a decision
differs.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("expected test files, got none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			if output != "text" && output != "junit" {
				return command.Usagef("-o must be one of text|junit, not %q", output)
			}
			var results []fileResult
			for _, file := range files {
				results = append(results, runTestFile(cmd.Context(), a, file, label))
			}
			if output == "junit" {
				return writeJUnit(a, results)
			}
			return writeText(a, results)
		},
	}
	cmd.Flags().StringVar(&label, "cluster-label", "cluster", "label of a series that identifies its cluster")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "output format: one of text|junit")
	return cmd
}

// runTestFile runs the tests of a file.
func runTestFile(ctx context.Context, a *command.App, file, label string) fileResult {
	result := fileResult{file: file}
	suite, err := readTestFile(a, file)
	if err != nil {
		result.err = err
		return result
	}
	suite.label = label
	for i := range suite.tests {
		t := &suite.tests[i]
		failures, err := t.run(ctx, a, suite)
		if err != nil {
			failures = append(failures, strings.Split(err.Error(), "\n")...)
		}
		result.tests = append(result.tests, testResult{name: t.Name, failures: failures})
	}
	return result
}

// readTestFile reads a test file and the policy, the gate and the rules that the file refers to.
func readTestFile(a *command.App, file string) (*testSuite, error) {
	content, err := manifest.ReadFile(a, file)
	if err != nil {
		return nil, err
	}
	f := testFile{}
	if err := yaml.UnmarshalStrict(content, &f); err != nil {
		return nil, fmt.Errorf("%s: must be a test file: %s", file, decoderPrefix.ReplaceAllString(err.Error(), ""))
	}
	switch {
	case f.Policy == "" && f.Gate == "":
		return nil, fmt.Errorf("%s: must set policy or gate", file)
	case len(f.Tests) == 0:
		return nil, fmt.Errorf("%s: must set tests", file)
	}
	for i := range f.Tests {
		if missing := f.Tests[i].missing(f.Gate != ""); len(missing) > 0 {
			return nil, fmt.Errorf("%s: tests[%d]: must set %s", file, i, strings.Join(missing, ", "))
		}
		if problem := f.Tests[i].problem(f.Policy != "", f.Gate != ""); problem != "" {
			return nil, fmt.Errorf("%s: tests[%d]: %s", file, i, problem)
		}
		f.Tests[i].Name = cmp.Or(f.Tests[i].Name, fmt.Sprintf("tests[%d]", i))
		f.Tests[i].Interval = cmp.Or(f.Tests[i].Interval, model.Duration(time.Minute))
	}
	suite := &testSuite{file: file, tests: f.Tests}
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
	m, err := manifest.Read(a, relativePaths(file, f.Policy, f.Gate))
	if err != nil {
		return nil, err
	}
	if f.Policy != "" {
		if suite.policy, err = m.OnlyPolicy(f.Policy); err != nil {
			return nil, err
		}
	}
	if f.Gate != "" {
		suite.gate, err = m.OnlyGate(f.Gate)
	}
	return suite, err
}

// relativePaths returns the different paths that are set, relative to the folder of file.
func relativePaths(file string, paths ...string) (relative []string) {
	for _, path := range paths {
		if path = relativeTo(file, path); path != relativeTo(file, "") && !slices.Contains(relative, path) {
			relative = append(relative, path)
		}
	}
	return relative
}

// relativeTo returns a path that is relative to the folder of file.
func relativeTo(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// run evaluates policy and gate, and returns the differences from what is expected. An error means that the test can't be
// evaluated.
func (t *unitTest) run(ctx context.Context, a *command.App, suite *testSuite) (differences []string, err error) {
	series, err := loadSeries(ctx, t, suite.rules)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, series.Close()) }()
	var problems error
	if suite.policy != nil && len(t.Expect) > 0 {
		differences, problems = t.score(ctx, suite, series)
	}
	if suite.gate != nil {
		wrong, err := t.decide(ctx, a, suite, series)
		differences, problems = append(differences, wrong...), errors.Join(problems, err)
	}
	return differences, problems
}

func (t *unitTest) now() time.Time { return time.Unix(0, 0).UTC().Add(time.Duration(t.EvalTime)) }

// score returns the scores of the policy that differ.
func (t *unitTest) score(ctx context.Context, suite *testSuite, series testSeries) ([]string, error) {
	spec, policy, err := round.Compile(&suite.policy.Spec, suite.label)
	if err != nil {
		return nil, err
	}
	report := round.Run(ctx, round.Request{
		Spec: spec, Policy: policy, Previous: score.AssumeMatched(policy), Querier: query.QuerierFunc(series.query),
		Clusters: clustermap.FromNames(suite.label, slices.AppendSeq(slices.Clone(t.Clusters), maps.Keys(t.Expect))), Now: t.now(),
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
