package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	modelvalue "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
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
type testSeries struct {
	series *memorySeries
	engine *promql.Engine
}

// maxTestSamples limits the samples that one query reads: Prometheus's own default.
const maxTestSamples = 50_000_000

// loadSeries loads the input series of a test and evaluates the rules up to evalTime. The
// caller must close the series.
func loadSeries(ctx context.Context, t *unitTest, rules []recordingRule) (testSeries, error) {
	series := newMemorySeries()
	for _, in := range t.InputSeries {
		if err := series.load(in, time.Duration(t.Interval)); err != nil {
			return testSeries{}, fmt.Errorf("inputSeries: %w", err)
		}
	}
	s := testSeries{series: series, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: maxTestSamples, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Duration(t.Interval).Milliseconds() },
	})}
	if err := s.evaluateRules(ctx, t, rules); err != nil {
		return testSeries{}, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close releases the engine.
func (s testSeries) Close() error { return s.engine.Close() }

// evaluateRules evaluates the rules at each interval up to evalTime. A rule sees no sample
// that is later than its evaluation.
func (s testSeries) evaluateRules(ctx context.Context, t *unitTest, rules []recordingRule) error {
	start := time.Unix(0, 0).UTC()
	recorded := make([]map[string]labels.Labels, len(rules))
	for at := time.Duration(0); at <= time.Duration(t.EvalTime); at += time.Duration(t.Interval) {
		s.series.until = timestamp.FromTime(start.Add(at))
		for i, r := range rules {
			var err error
			if recorded[i], err = s.record(ctx, r, start.Add(at), recorded[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// record evaluates a rule and stores its samples. previous holds the series of the
// preceding evaluation; a series that is now missing gets a stale marker.
func (s testSeries) record(ctx context.Context, r recordingRule, at time.Time, previous map[string]labels.Labels) (map[string]labels.Labels, error) {
	result, err := s.query(ctx, r.Expr, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Record, err)
	}
	current := map[string]labels.Labels{}
	for _, sample := range result.Samples {
		b := labels.NewBuilder(labels.FromMap(sample.Labels)).Set(model.MetricNameLabel, r.Record)
		for name, v := range r.Labels {
			b.Set(name, v)
		}
		set := b.Labels()
		if _, twice := current[set.String()]; twice {
			return nil, fmt.Errorf("%s: two results have the labels %s", r.Record, set)
		}
		current[set.String()] = set
		s.series.append(set, memorySample{at: timestamp.FromTime(at), value: sample.Value})
	}
	for key, set := range previous {
		if _, exists := current[key]; !exists {
			s.series.append(set, memorySample{at: timestamp.FromTime(at), value: math.Float64frombits(modelvalue.StaleNaN)})
		}
	}
	return current, nil
}

// query implements query.QuerierFunc.
func (s testSeries) query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	return instantQuery(ctx, s.engine, s.series, expr, at)
}

// instantQuery evaluates an expression and returns its samples.
func instantQuery(ctx context.Context, engine *promql.Engine, series storage.Queryable, expr string, at time.Time) (query.Result, error) {
	q, err := engine.NewInstantQuery(ctx, series, nil, expr, at)
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
