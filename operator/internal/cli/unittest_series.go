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

// rule is a recording rule.
type rule struct {
	Record string            `json:"record"` // empty: an alert
	Expr   string            `json:"expr"`
	Labels map[string]string `json:"labels"`
}

// rulesIn a file of Prometheus's, group by group; alerts are left out.
func rulesIn(file string, content []byte) ([]rule, error) {
	var groups struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(content, &groups); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var rules []rule
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				rules = append(rules, r)
			}
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%s: must hold groups with recording rules", file)
	}
	return rules, nil
}

// series of a test and Prometheus's engine over them.
type series struct{ *promqltest.LazyLoader }

// load a test's series up to its evalTime, with what the rules make of them.
func load(ctx context.Context, t *unitTest, rules []rule) (series, error) {
	var script strings.Builder
	fmt.Fprintf(&script, "load %s\n", t.Interval)
	for _, in := range t.InputSeries {
		fmt.Fprintf(&script, "  %s %s\n", in.Series, in.Values)
	}
	loader, err := promqltest.NewLazyLoader(script.String(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		return series{}, fmt.Errorf("inputSeries: %w", err)
	}
	s := series{loader}
	s.SubqueryInterval = time.Duration(t.Interval)
	if err := s.fill(ctx, t, rules); err != nil {
		return series{}, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s series) fill(ctx context.Context, t *unitTest, rules []rule) error {
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

// record what a rule gives, and the end of the series that it gave before and gives
// no more.
func (s series) record(ctx context.Context, r rule, at time.Time, before map[string]labels.Labels) (map[string]labels.Labels, error) {
	answer, err := s.query(ctx, r.Expr, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Record, err)
	}
	app := s.Storage().AppenderV2(ctx)
	now := map[string]labels.Labels{}
	for _, sample := range answer.Samples {
		b := labels.NewBuilder(labels.FromMap(sample.Labels)).Set(model.MetricNameLabel, r.Record)
		for name, v := range r.Labels {
			b.Set(name, v)
		}
		set := b.Labels()
		now[set.String()] = set
		if _, err := app.Append(0, set, 0, timestamp.FromTime(at), sample.Value, nil, nil, storage.AOptions{}); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", r.Record, err), app.Rollback())
		}
	}
	for key, set := range before {
		if _, still := now[key]; still {
			continue
		}
		if _, err := app.Append(0, set, 0, timestamp.FromTime(at), math.Float64frombits(modelvalue.StaleNaN), nil, nil, storage.AOptions{}); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", r.Record, err), app.Rollback())
		}
	}
	return now, app.Commit()
}

// query is a query.QuerierFunc.
func (s series) query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	q, err := s.QueryEngine().NewInstantQuery(ctx, s.Queryable(), nil, expr, at)
	if err != nil {
		return query.Result{}, err
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return query.Result{}, result.Err
	}
	var answer query.Result
	answer.Warnings, answer.Infos = result.Warnings.AsStrings(expr, 0, 0)
	switch v := result.Value.(type) {
	case promql.Scalar:
		answer.Samples = []query.Sample{{Value: v.V}}
	case promql.Vector:
		for _, sample := range v {
			if sample.H != nil {
				continue // a native histogram: no number to score
			}
			answer.Samples = append(answer.Samples, query.Sample{Labels: sample.Metric.Map(), Value: sample.F})
		}
	default:
		return query.Result{}, fmt.Errorf("a %s is no instant vector", v.Type())
	}
	return answer, nil
}
