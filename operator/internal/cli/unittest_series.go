package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	modelvalue "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/query"
)

// recordingRule is a rule of a rule file. Record is empty for an alert.
type recordingRule struct {
	Record string            `json:"record"`
	Expr   string            `json:"expr"`
	Labels map[string]string `json:"labels"`
}

// decodeRules decodes the recording rules of a Prometheus rule file, in order. Alerts are
// ignored.
func decodeRules(file string, content []byte) ([]recordingRule, error) {
	var groups struct {
		Groups []struct {
			Rules []recordingRule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(content, &groups); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var rules []recordingRule
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				rules = append(rules, r)
			}
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%s: must contain groups with recording rules", file)
	}
	return rules, nil
}

// testSeries holds the series of a test and Prometheus's engine.
type testSeries struct{ *promqltest.LazyLoader }

// loadSeries loads the input series of a test up to evalTime and evaluates the rules. The
// caller must close the series.
func loadSeries(ctx context.Context, t *unitTest, rules []recordingRule) (testSeries, error) {
	var script strings.Builder
	fmt.Fprintf(&script, "load %s\n", t.Interval)
	for _, in := range t.InputSeries {
		fmt.Fprintf(&script, "  %s %s\n", in.Series, in.Values)
	}
	loader, err := promqltest.NewLazyLoader(script.String(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		return testSeries{}, fmt.Errorf("inputSeries: %w", err)
	}
	s := testSeries{loader}
	s.SubqueryInterval = time.Duration(t.Interval)
	if err := s.evaluateRules(ctx, t, rules); err != nil {
		return testSeries{}, errors.Join(err, s.Close())
	}
	return s, nil
}

// evaluateRules loads the samples interval by interval and evaluates the rules after each.
func (s testSeries) evaluateRules(ctx context.Context, t *unitTest, rules []recordingRule) error {
	start := time.Unix(0, 0).UTC()
	recorded := make([]map[string]labels.Labels, len(rules))
	for at := time.Duration(0); at <= time.Duration(t.EvalTime); at += time.Duration(t.Interval) {
		var err error
		s.WithSamplesTill(start.Add(at), func(failed error) { err = failed })
		for i := 0; err == nil && i < len(rules); i++ {
			recorded[i], err = s.record(ctx, rules[i], start.Add(at), recorded[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// record evaluates a rule and appends its samples. previous holds the series of the
// preceding evaluation; a series that is now missing gets a stale marker.
func (s testSeries) record(ctx context.Context, r recordingRule, at time.Time, previous map[string]labels.Labels) (map[string]labels.Labels, error) {
	result, err := s.query(ctx, r.Expr, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Record, err)
	}
	app := s.Storage().AppenderV2(ctx)
	current := map[string]labels.Labels{}
	for _, sample := range result.Samples {
		b := labels.NewBuilder(labels.FromMap(sample.Labels)).Set(model.MetricNameLabel, r.Record)
		for name, v := range r.Labels {
			b.Set(name, v)
		}
		set := b.Labels()
		current[set.String()] = set
		if _, err := app.Append(0, set, 0, timestamp.FromTime(at), sample.Value, nil, nil, storage.AOptions{}); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", r.Record, err), app.Rollback())
		}
	}
	for key, set := range previous {
		if _, exists := current[key]; exists {
			continue
		}
		if _, err := app.Append(0, set, 0, timestamp.FromTime(at), math.Float64frombits(modelvalue.StaleNaN), nil, nil, storage.AOptions{}); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", r.Record, err), app.Rollback())
		}
	}
	return current, app.Commit()
}

// query implements query.QuerierFunc.
func (s testSeries) query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	q, err := s.QueryEngine().NewInstantQuery(ctx, s.Queryable(), nil, expr, at)
	if err != nil {
		return query.Result{}, err
	}
	defer q.Close()
	executed := q.Exec(ctx)
	if executed.Err != nil {
		return query.Result{}, executed.Err
	}
	var result query.Result
	result.Warnings, result.Infos = executed.Warnings.AsStrings(expr, 0, 0)
	switch v := executed.Value.(type) {
	case promql.Scalar:
		result.Samples = []query.Sample{{Value: v.V}}
	case promql.Vector:
		for _, sample := range v {
			if sample.H != nil {
				continue // a native histogram has no single number to score
			}
			result.Samples = append(result.Samples, query.Sample{Labels: sample.Metric.Map(), Value: sample.F})
		}
	default:
		return query.Result{}, fmt.Errorf("the query must return an instant vector, returns a %s", v.Type())
	}
	return result, nil
}
