package unittest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
	exprs "plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// testSeries holds the series of a test and Prometheus's engine.
type testSeries struct {
	series *promengine.Memory
	engine *promql.Engine
}

// maxTestSamples limits the samples that one query reads: Prometheus's own default.
const maxTestSamples = 50_000_000

// loadSeries loads the input series of a test and evaluates the rules up to evalTime. The
// caller must close the series.
func loadSeries(ctx context.Context, t *unitTest, rules []promengine.Rule) (testSeries, error) {
	series := promengine.NewMemory()
	for _, in := range t.InputSeries {
		if err := loadInput(series, in, time.Duration(t.Interval)); err != nil {
			return testSeries{}, fmt.Errorf("inputSeries: %w", err)
		}
	}
	s := testSeries{series: series, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: maxTestSamples, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Duration(t.Interval).Milliseconds() },
		Parser:                   parser.NewParser(exprs.Options),
	})}
	if err := s.evaluateRules(ctx, t, rules); err != nil {
		return testSeries{}, errors.Join(err, s.Close())
	}
	return s, nil
}

// loadInput adds a series in promtool's notation. Its first sample is at Unix time 0.
func loadInput(to *promengine.Memory, in inputSeries, interval time.Duration) error {
	set, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(in.Series + " " + in.Values)
	if err != nil {
		return fmt.Errorf("%s %s: %w", in.Series, in.Values, err)
	}
	if to.Contains(set) {
		return fmt.Errorf("%s occurs twice", set)
	}
	for i, v := range values {
		if v.Omitted {
			continue
		}
		if err := to.Append(set, time.Unix(0, 0).Add(interval*time.Duration(i)), v.Value, v.Histogram); err != nil {
			return err
		}
	}
	return nil
}

// Close releases the engine.
func (s testSeries) Close() error { return s.engine.Close() }

// evaluateRules evaluates the rules at each interval up to evalTime. A rule sees no sample
// that is later than its evaluation.
func (s testSeries) evaluateRules(ctx context.Context, t *unitTest, rules []promengine.Rule) error {
	start := time.Unix(0, 0).UTC()
	recorder := promengine.NewRecorder(s.engine, s.series, rules)
	for at := time.Duration(0); at <= time.Duration(t.EvalTime); at += time.Duration(t.Interval) {
		s.series.HideAfter(start.Add(at))
		if err := recorder.Evaluate(ctx, start.Add(at)); err != nil {
			return err
		}
	}
	return nil
}

// query implements query.QuerierFunc.
func (s testSeries) query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	return promengine.Query(ctx, s.engine, s.series, expr, at)
}
