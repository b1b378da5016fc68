package metrics

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
)

const (
	// lookback is the time in milliseconds after which Prometheus no longer finds a sample.
	lookback = int64(5 * time.Minute / time.Millisecond)
	// clusterLabel is the label with the name of the cluster.
	clusterLabel = "cluster"
)

var staleMarker = math.Float64frombits(value.StaleNaN)

// series is a series with its newest sample.
type series struct {
	labels   labels.Labels
	metric   *metric
	appender *promengine.Appender
	at       int64 // in milliseconds
	value    float64
	isStale  bool
	// dropped means that the table has no samples of the series. A new series may have its labels.
	dropped bool
	// scrape is the number of the last scrape or evaluation that exported the series.
	scrape uint64
}

// metric is all series of one name. Two queries at different times have the same result if the version
// did not change, as long as no series leaves the lookback. See memo.
type metric struct {
	// version counts the samples that change what an instant query returns.
	version uint64
	newest  int64 // time of the newest sample
	queried int64 // latest time for which a query selected the metric
	series  []*series
}

// table stores samples. It implements storage.Queryable.
type table struct {
	memory  *promengine.Memory
	byKey   map[string]*series
	metrics map[string]*metric
	key     []byte
	builder *labels.Builder
	// scrape is the number of the current scrape or evaluation.
	scrape uint64
}

func newTable() *table {
	return &table{memory: promengine.NewMemory(), byKey: map[string]*series{}, metrics: map[string]*metric{}, builder: labels.NewBuilder(labels.EmptyLabels())}
}

// metric returns the metric with the name. It exists before its first sample, so that a query can
// refer to it.
func (t *table) metric(name string) *metric {
	m := t.metrics[name]
	if m == nil {
		m = &metric{newest: math.MinInt64, queried: math.MinInt64}
		t.metrics[name] = m
	}
	return m
}

// find returns the series with the labels, and adds it if it does not exist.
func (t *table) find(set labels.Labels) *series {
	t.key = set.Bytes(t.key[:0])
	s := t.byKey[string(t.key)]
	if s == nil {
		s = &series{labels: set, metric: t.metric(set.Get(model.MetricNameLabel)), appender: t.memory.Appender(set), isStale: true}
		t.byKey[string(t.key)] = s
		s.metric.series = append(s.metric.series, s)
	}
	return s
}

// append adds a sample to a series.
func (t *table) append(s *series, at int64, v float64) error {
	if err := s.appender.Append(at, v); err != nil {
		return err
	}
	isStale := value.IsStaleNaN(v)
	isChange := isStale != s.isStale || !isStale && (math.Float64bits(v) != math.Float64bits(s.value) || at-s.at >= lookback)
	if isChange || at <= s.metric.queried { // the result of a query for a later time may differ now
		s.metric.version++
	}
	s.at, s.value, s.isStale = at, v, isStale
	s.metric.newest = max(s.metric.newest, at)
	return nil
}

// drop drops samples that are earlier than at.
func (t *table) drop(at int64) {
	t.memory.DropBefore(timestamp.Time(at))
	for _, m := range t.metrics {
		m.series = slices.DeleteFunc(m.series, func(s *series) bool {
			if s.at >= at {
				return false
			}
			s.dropped = true
			m.version++ // the last result may be from before the series left the lookback
			delete(t.byKey, string(s.labels.Bytes(nil)))
			return true
		})
	}
}

// Querier implements storage.Queryable.
func (t *table) Querier(from, to int64) (storage.Querier, error) { return t.memory.Querier(from, to) }

// hidden is a storage without the series of some clusters.
type hidden struct {
	storage.Queryable
	matcher *labels.Matcher
}

// Querier implements storage.Queryable.
func (h hidden) Querier(from, to int64) (storage.Querier, error) {
	q, err := h.Queryable.Querier(from, to)
	return hiddenQuerier{q, h.matcher}, err
}

type hiddenQuerier struct {
	storage.Querier
	matcher *labels.Matcher
}

// Select implements storage.Querier.
func (q hiddenQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	return q.Querier.Select(ctx, sorted, hints, append(slices.Clone(matchers), q.matcher)...)
}

// target is a source of series, such as an exporter, that exports about the same series each time. The
// recorded series of a cluster are one as well, in ClosedForm.
type target struct {
	cluster, job, instance string
	part                   Part
	exported               []exportedSeries
	up                     *series
}

// exportedSeries is a series in the order in which a target exports it.
type exportedSeries struct {
	name   string
	labels []string
	series *series
}

// export is one scrape of a target.
type export struct {
	table  *table
	target *target
	at     int64
	next   int // position in target.exported
	// changed are the series if they differ from target.exported; nil if they do not yet.
	changed []exportedSeries
	err     error
}

func (t *table) export(target *target, at int64) *export {
	return &export{table: t, target: target, at: at}
}

// maxSkipped is the number of series that a target may stop to export before the next one is searched
// by its labels.
const maxSkipped = 16

// add adds a sample with the labels kv, which are names and values. The labels of the target are
// added. A series that follows the same ones as in the last scrape is found without its labels.
func (e *export) add(name string, v float64, kv ...string) {
	exported := e.target.exported
	for i := e.next; i < min(len(exported), e.next+maxSkipped); i++ {
		x := &exported[i]
		if x.name != name || !slices.Equal(x.labels, kv) {
			continue
		}
		if x.series.dropped {
			x.series = e.table.find(x.series.labels)
		}
		if i > e.next {
			e.change()
		}
		if e.next = i + 1; e.changed != nil {
			e.changed = append(e.changed, *x)
		}
		e.append(x.series, v)
		return
	}
	e.change()
	s := e.find(name, kv)
	e.changed = append(e.changed, exportedSeries{name, slices.Clone(kv), s})
	e.append(s, v)
}

// change begins a list of series that differs from that of the last scrape.
func (e *export) change() {
	if e.changed == nil {
		e.changed = append(make([]exportedSeries, 0, len(e.target.exported)+1), e.target.exported[:e.next]...)
	}
}

func (e *export) find(name string, kv []string) *series {
	b := e.table.builder
	b.Reset(labels.EmptyLabels())
	b.Set(model.MetricNameLabel, name).Set(clusterLabel, e.target.cluster).Set(model.JobLabel, e.target.job).Set(model.InstanceLabel, e.target.instance)
	for i := 0; i < len(kv); i += 2 {
		b.Set(kv[i], kv[i+1])
	}
	return e.table.find(b.Labels())
}

// append adds a sample, unless this scrape exported the series before: Prometheus keeps the first one.
func (e *export) append(s *series, v float64) {
	if e.err != nil || s.scrape == e.table.scrape {
		return
	}
	s.scrape = e.table.scrape
	e.err = e.table.append(s, e.at, v)
}

// finish marks the series as stale that the target exported last time and no longer exports.
func (e *export) finish() error {
	exported := e.target.exported
	switch {
	case e.changed != nil:
		e.target.exported = e.changed
	case e.next < len(exported):
		e.target.exported = exported[:e.next:e.next]
	default:
		return e.err
	}
	for _, x := range exported {
		if e.err == nil && x.series.scrape != e.table.scrape && !x.series.isStale && !x.series.dropped {
			e.err = e.table.append(x.series, e.at, staleMarker)
		}
	}
	return e.err
}
