package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"plimsoll.dev/plimsoll/operator/internal/promengine"
)

// memorySeries is a storage.Queryable over a few series in memory. Prometheus's own test
// storage would link its database, cloud SDKs and test libraries into the plugin.
type memorySeries struct {
	series map[string]*oneSeries
	// until is the time in milliseconds after which samples are not visible.
	until int64
}

type oneSeries struct {
	labels  labels.Labels
	samples []chunks.Sample // sorted by time
}

func newMemorySeries() *memorySeries { return &memorySeries{series: map[string]*oneSeries{}} }

// load adds a series in promtool's notation. Its first sample is at Unix time 0.
func (m *memorySeries) load(in inputSeries, interval time.Duration) error {
	set, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(in.Series + " " + in.Values)
	if err != nil {
		return fmt.Errorf("%s %s: %w", in.Series, in.Values, err)
	}
	if _, exists := m.series[set.String()]; exists {
		return fmt.Errorf("%s occurs twice", set)
	}
	for i, v := range values {
		if !v.Omitted {
			m.append(set, memorySample{at: interval.Milliseconds() * int64(i), value: v.Value, histogram: v.Histogram})
		}
	}
	return nil
}

// append adds a sample that is later than the other samples of its series.
func (m *memorySeries) append(set labels.Labels, s memorySample) {
	key := set.String()
	if m.series[key] == nil {
		m.series[key] = &oneSeries{labels: set}
	}
	m.series[key].samples = append(m.series[key].samples, s)
}

// Store implements promengine.Storage.
func (m *memorySeries) Store(_ context.Context, at time.Time, samples []promengine.Sample) error {
	for _, s := range samples {
		m.append(s.Series, memorySample{at: timestamp.FromTime(at), value: s.Value})
	}
	return nil
}

// Querier implements storage.Queryable.
func (m *memorySeries) Querier(from, to int64) (storage.Querier, error) {
	return memoryQuerier{memorySeries: m, from: from, to: min(to, m.until)}, nil
}

// memoryQuerier reads the samples of a time range, both ends included.
type memoryQuerier struct {
	*memorySeries
	from, to int64
}

// Select returns the matching series, sorted by their labels.
func (q memoryQuerier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &memorySet{index: -1}
	for _, s := range q.series {
		if !matchesAll(s.labels, matchers) {
			continue
		}
		visible := slices.DeleteFunc(slices.Clone(s.samples), func(c chunks.Sample) bool { return c.T() < q.from || c.T() > q.to })
		if len(visible) > 0 {
			set.all = append(set.all, storage.NewListSeries(s.labels, visible))
		}
	}
	slices.SortFunc(set.all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

func matchesAll(set labels.Labels, matchers []*labels.Matcher) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(set.Get(m.Name)) })
}

// errNoLabelQueries is the error of the queries that an engine never sends.
var errNoLabelQueries = errors.New("label queries are not supported")

// LabelValues implements storage.LabelQuerier.
func (memoryQuerier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errNoLabelQueries
}

// LabelNames implements storage.LabelQuerier.
func (memoryQuerier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errNoLabelQueries
}

// Close implements storage.LabelQuerier.
func (memoryQuerier) Close() error { return nil }

// memorySet iterates over series.
type memorySet struct {
	all   []storage.Series
	index int
}

func (s *memorySet) Next() bool                      { s.index++; return s.index < len(s.all) }
func (s *memorySet) At() storage.Series              { return s.all[s.index] }
func (*memorySet) Err() error                        { return nil }
func (*memorySet) Warnings() annotations.Annotations { return nil }

// memorySample is a chunks.Sample: a number, or a histogram if that is set. The time is in
// milliseconds.
type memorySample struct {
	at        int64
	value     float64
	histogram *histogram.FloatHistogram
}

// T returns the time of the sample.
func (s memorySample) T() int64 { return s.at }

// ST returns the start time of a counter, which is unknown.
func (memorySample) ST() int64 { return 0 }

// F returns the value of a number.
func (s memorySample) F() float64 { return s.value }

// H returns nil, because all histograms have floating-point counts.
func (memorySample) H() *histogram.Histogram { return nil }

// FH returns the histogram.
func (s memorySample) FH() *histogram.FloatHistogram { return s.histogram }

// Type distinguishes numbers from histograms.
func (s memorySample) Type() chunkenc.ValueType {
	if s.histogram != nil {
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// Copy implements chunks.Sample.
func (s memorySample) Copy() chunks.Sample {
	if s.histogram != nil {
		s.histogram = s.histogram.Copy()
	}
	return s
}
