package main

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// reader is the storage as the rule at an index sees it at a step: the input series, the results
// of earlier rules up to this step, and those of other rules up to the step before.
type reader struct {
	*simulation
	index, step int
}

func (r reader) Querier(int64, int64) (storage.Querier, error) { return r, nil }

func (reader) Close() error { return nil }

func (reader) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (reader) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Select returns the samples of the time range in the hints.
func (r reader) Select(_ context.Context, _ bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := seriesSet{byLabels: map[string]*promql.Series{}}
	for _, in := range r.test.input {
		if !matchesAll(matchers, in.Metric) {
			continue
		}
		first := sort.Search(len(in.Floats), func(i int) bool { return in.Floats[i].T >= hints.Start })
		for _, p := range in.Floats[first:] {
			if p.T <= hints.End {
				found.add(in.Metric, p)
			}
		}
	}
	for i := range r.rules {
		name := r.rules[i].seriesName()
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && !m.Matches(name) }) {
			continue
		}
		if err := r.addResults(&found, i, hints, matchers); err != nil {
			return storage.ErrSeriesSet(err)
		}
	}
	slices.SortFunc(found.series, func(a, b *promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	found.at = -1
	return &found
}

// addResults adds the results of the rule at index i. If an instant vector is selected, only the
// last step counts. Otherwise a sample marks the step at which a series ends.
func (r reader) addResults(found *seriesSet, i int, hints *storage.SelectHints, matchers []*labels.Matcher) error {
	last := r.stepAt(hints.End)
	if i < r.index {
		last = min(last, r.step)
	} else {
		last = min(last, r.step-1)
	}
	first := max(r.stepAt(hints.Start-1)+1, 0)
	if hints.Range == 0 && hints.End-hints.Start < lookback.Milliseconds() {
		first = max(first, last)
	}
	var before promql.Vector
	for step := first; step <= last; step++ {
		now, err := r.series(i, step)
		if err != nil {
			return err
		}
		t := r.timeOf(step).UnixMilli()
		for _, s := range now {
			if matchesAll(matchers, s.Metric) {
				found.add(s.Metric, promql.FPoint{T: t, F: s.F})
			}
		}
		for _, s := range before {
			if _, ok := found.byLabels[s.Metric.String()]; ok && !slices.ContainsFunc(now, func(n promql.Sample) bool { return labels.Equal(n.Metric, s.Metric) }) {
				found.add(s.Metric, promql.FPoint{T: t, F: math.Float64frombits(value.StaleNaN)})
			}
		}
		before = now
	}
	return nil
}

// seriesName returns the name of the series that a rule writes.
func (r rule) seriesName() string {
	if r.content.Alert != "" {
		return "ALERTS"
	}
	return r.content.Record
}

func matchesAll(matchers []*labels.Matcher, metric labels.Labels) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(metric.Get(m.Name)) })
}

// seriesSet is a storage.SeriesSet.
type seriesSet struct {
	byLabels map[string]*promql.Series
	series   []*promql.Series
	at       int
}

// add adds a sample to a series. Of two samples at the same time the first counts.
func (s *seriesSet) add(metric labels.Labels, p promql.FPoint) {
	key := metric.String()
	series := s.byLabels[key]
	if series == nil {
		series = &promql.Series{Metric: metric}
		s.byLabels[key], s.series = series, append(s.series, series)
	}
	if n := len(series.Floats); n == 0 || series.Floats[n-1].T < p.T {
		series.Floats = append(series.Floats, p)
	}
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(*s.series[s.at]) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
