package promengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Memory is a Storage in memory. It keeps all samples until DropBefore, so it is for a few thousand
// series over some minutes. Prometheus's own database would link cloud SDKs. Memory is safe for
// concurrent use.
type Memory struct {
	mu       sync.RWMutex
	byLabels map[string]*memorySeries
	byName   map[string]*memoryMetric
	// until is the time in milliseconds after which samples are not visible.
	until int64
}

// memoryMetric is all series of one name. A query sorts those that were added since the last one.
type memoryMetric struct {
	series   []*memorySeries
	isSorted bool
}

type memorySeries struct {
	labels  labels.Labels
	key     string        // of Memory.byLabels
	samples memorySamples // sorted by time; samples are only appended
	// dropped means that DropBefore removed the series from its Memory.
	dropped bool
}

// keyOf returns a key that is unique for the labels. It costs less than their text.
func keyOf(series labels.Labels) string { return string(series.Bytes(nil)) }

// NewMemory returns an empty storage.
func NewMemory() *Memory {
	return &Memory{byLabels: map[string]*memorySeries{}, byName: map[string]*memoryMetric{}, until: math.MaxInt64}
}

// Contains reports whether the storage has samples of a series.
func (m *Memory) Contains(series labels.Labels) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byLabels[keyOf(series)] != nil
}

// HideAfter hides samples that are later than at from queries.
func (m *Memory) HideAfter(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = timestamp.FromTime(at)
}

// DropBefore drops samples that are earlier than at, and series without later samples.
func (m *Memory) DropBefore(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, metric := range m.byName {
		for _, s := range metric.series {
			// The next growth of the slice frees the dropped samples.
			s.samples = s.between(timestamp.FromTime(at), math.MaxInt64)
			if len(s.samples) == 0 {
				s.dropped = true
				delete(m.byLabels, s.key)
			}
		}
		metric.series = slices.DeleteFunc(metric.series, func(s *memorySeries) bool { return s.dropped })
		if len(metric.series) == 0 {
			delete(m.byName, name)
		}
	}
}

// Append adds a sample to a series: h, or the value if h is nil. It returns an error unless
// the sample is later than the other samples of the series.
func (m *Memory) Append(series labels.Labels, at time.Time, value float64, h *histogram.FloatHistogram) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(series).append(memorySample{at: timestamp.FromTime(at), value: value, histogram: h})
}

// find returns the series with the labels, and adds it if it does not exist. The caller must hold
// m.mu.
func (m *Memory) find(series labels.Labels) *memorySeries {
	key := keyOf(series)
	s := m.byLabels[key]
	if s == nil {
		s = &memorySeries{labels: series, key: key}
		m.byLabels[key] = s
		name := series.Get(model.MetricNameLabel)
		metric := m.byName[name]
		if metric == nil {
			metric = &memoryMetric{}
			m.byName[name] = metric
		}
		metric.series, metric.isSorted = append(metric.series, s), false
	}
	return s
}

func (s *memorySeries) append(sample memorySample) error {
	if n := len(s.samples); n > 0 && s.samples[n-1].at >= sample.at {
		return fmt.Errorf("%s already has a sample at or after %s", s.labels, timestamp.Time(sample.at).UTC().Format(time.RFC3339Nano))
	}
	s.samples = append(s.samples, sample)
	return nil
}

// Appender appends numbers to one series of a Memory, without a search for it each time.
type Appender struct {
	memory *Memory
	series *memorySeries
}

// Appender returns an Appender for the series with the labels.
func (m *Memory) Appender(series labels.Labels) *Appender {
	return &Appender{memory: m, series: &memorySeries{labels: series, dropped: true}}
}

// Append adds a sample at a time in milliseconds. Its errors are those of Memory.Append.
func (a *Appender) Append(at int64, value float64) error {
	a.memory.mu.Lock()
	defer a.memory.mu.Unlock()
	if a.series.dropped {
		a.series = a.memory.find(a.series.labels)
	}
	return a.series.append(memorySample{at: at, value: value})
}

// Store implements Storage.
func (m *Memory) Store(_ context.Context, at time.Time, samples []Sample) error {
	for _, s := range samples {
		if err := m.Append(s.Series, at, s.Value, nil); err != nil {
			return err
		}
	}
	return nil
}

// Querier implements storage.Queryable.
func (m *Memory) Querier(from, to int64) (storage.Querier, error) {
	return memoryQuerier{memory: m, from: from, to: to}, nil
}

// memoryQuerier reads the samples of a time range, both ends included.
type memoryQuerier struct {
	memory   *Memory
	from, to int64
}

// Select returns the matching series, sorted by their labels.
func (q memoryQuerier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	q.memory.mu.Lock()
	defer q.memory.mu.Unlock()
	candidates := q.memory.candidates(matchers)
	set := &memorySet{index: -1, all: make([]visibleSeries, 0, len(candidates))}
	for _, s := range candidates {
		if visible := s.between(q.from, min(q.to, q.memory.until)); len(visible) > 0 && matchesAll(s.labels, matchers) {
			set.all = append(set.all, visibleSeries{s.labels, visible})
		}
	}
	return set
}

// candidates returns the series of the metric that the matchers name, or all series, sorted by their
// labels. The caller must hold m.mu.
func (m *Memory) candidates(matchers []*labels.Matcher) []*memorySeries {
	compare := func(a, b *memorySeries) int { return labels.Compare(a.labels, b.labels) }
	for _, matcher := range matchers {
		if matcher.Name != model.MetricNameLabel || matcher.Type != labels.MatchEqual {
			continue
		}
		metric := m.byName[matcher.Value]
		if metric == nil {
			return nil
		}
		if !metric.isSorted {
			slices.SortFunc(metric.series, compare)
			metric.isSorted = true
		}
		return metric.series
	}
	var all []*memorySeries
	for _, metric := range m.byName {
		all = append(all, metric.series...)
	}
	slices.SortFunc(all, compare)
	return all
}

// between returns the samples of a time range, both ends included.
func (s *memorySeries) between(from, to int64) memorySamples {
	first, _ := slices.BinarySearchFunc(s.samples, from, func(c memorySample, at int64) int { return cmp.Compare(c.at, at) })
	samples := s.samples[first:]
	for len(samples) > 0 && samples[len(samples)-1].at > to {
		samples = samples[:len(samples)-1]
	}
	return samples
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
	all   []visibleSeries
	index int
}

func (s *memorySet) Next() bool                      { s.index++; return s.index < len(s.all) }
func (s *memorySet) At() storage.Series              { return &s.all[s.index] }
func (*memorySet) Err() error                        { return nil }
func (*memorySet) Warnings() annotations.Annotations { return nil }

// visibleSeries is a series with the samples of a time range.
type visibleSeries struct {
	labels  labels.Labels
	samples memorySamples
}

// Labels implements storage.Series.
func (s *visibleSeries) Labels() labels.Labels { return s.labels }

// Iterator implements storage.Series.
func (s *visibleSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	if reusable, ok := it.(interface{ Reset(samples storage.Samples) }); ok {
		reusable.Reset(s.samples)
		return it
	}
	return storage.NewListSeriesIterator(s.samples)
}

// memorySamples implements storage.Samples.
type memorySamples []memorySample

// Get returns a sample. A pointer is no new object, unlike a copy.
func (s memorySamples) Get(i int) chunks.Sample { return &s[i] }

// Len returns the number of samples.
func (s memorySamples) Len() int { return len(s) }

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
