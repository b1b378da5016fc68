package scripted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

const (
	// ScrapeInterval is also the shortest interval of rules.
	ScrapeInterval = time.Minute
	// history is how long all series go back.
	history = 3*time.Hour + 10*time.Minute
	// days is how far the series of the forecast go back.
	days = 14 * 24 * time.Hour
)

// Prometheus holds the series of a Fleet and the results of the rules.
type Prometheus struct {
	db     *tsdb.DB
	engine *promql.Engine
	end    time.Time
}

// Open records the fleet's metrics in a TSDB in dir, and evaluates the rules of the files
// at each scrape, in the order of the files.
func Open(ctx context.Context, f *Fleet, dir string, ruleFiles []string, log *slog.Logger) (*Prometheus, error) {
	options := tsdb.DefaultOptions()
	options.MinBlockDuration, options.MaxBlockDuration = 30*24*time.Hour.Milliseconds(), 30*24*time.Hour.Milliseconds()
	db, err := tsdb.Open(dir, log, nil, options, nil)
	if err != nil {
		return nil, fmt.Errorf("open the TSDB: %w", err)
	}
	p := &Prometheus{db: db, end: f.end, engine: promql.NewEngine(promql.EngineOpts{
		Logger: log, MaxSamples: 20_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return ScrapeInterval.Milliseconds() }, Parser: parser.NewParser(parser.Options{}),
	})}
	rules, err := readRules(ruleFiles)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := p.record(ctx, f, rules); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return p, nil
}

// Close closes the TSDB.
func (p *Prometheus) Close() error { return p.db.Close() }

// End returns the time of the last samples.
func (p *Prometheus) End() time.Time { return p.end }

func (p *Prometheus) record(ctx context.Context, f *Fleet, rules []*rule) error {
	start := f.end.Add(-history)
	for at := f.end.Add(-days); at.Before(start); at = at.Add(4 * time.Minute) {
		if err := p.scrape(ctx, f, at, f.exportDemand); err != nil {
			return err
		}
	}
	for at := start; !at.After(f.end); at = at.Add(ScrapeInterval) {
		if err := p.scrape(ctx, f, at, f.export); err != nil {
			return err
		}
		for _, r := range rules {
			if at.Sub(start)%r.interval != 0 {
				continue
			}
			if err := p.evaluate(ctx, r, at); err != nil {
				return fmt.Errorf("%s: %w", r.name(), err)
			}
		}
	}
	return nil
}

func (p *Prometheus) scrape(ctx context.Context, f *Fleet, at time.Time, export func(*emitter)) error {
	e := &emitter{at: at, app: p.db.AppenderV2(ctx), alter: f.alter}
	export(e)
	if e.err != nil {
		return errors.Join(e.err, e.app.Rollback())
	}
	return e.app.Commit()
}

// export emits all series of a time.
func (f *Fleet) export(e *emitter) {
	for _, c := range f.clusters {
		if f.happens(c.goneFor, e.at) {
			continue
		}
		e.cluster = ""
		if f.labeled {
			e.cluster = c.name
		}
		f.exportCluster(e, c)
	}
	e.cluster = ""
	if f.labeled { // with one cluster, its queues are the hub's
		f.exportKueue(e, "hub", gpuResource, 120)
	}
	f.exportHub(e)
	if f.extra != nil {
		f.extra(e)
	}
}

// exportCluster emits the series of a cluster.
func (f *Fleet) exportCluster(e *emitter, c *cluster) {
	f.exportKube(e, c)
	devices := 0.0
	for _, n := range c.nodes {
		f.exportNode(e, c, n)
		devices += float64(len(n.devices))
	}
	f.exportKueue(e, c.name, resourceOf[c.nodes[0].model], devices)
}

// exportDemand emits the series of the forecast from before the history of the others.
func (f *Fleet) exportDemand(e *emitter) {
	for _, c := range f.clusters {
		if f.labeled {
			e.cluster = c.name
		}
		devices := 0.0
		for _, n := range c.nodes {
			devices += float64(len(n.devices))
		}
		grown := 1 - f.end.Sub(e.at).Hours()/24/40
		resource := resourceOf[c.nodes[0].model]
		e.add("cluster_resource:plimsoll_demand_devices:max1d", devices*grown*0.8, "resource", resource)
		e.add("cluster_resource:plimsoll_usable_devices:max1d", devices, "resource", resource)
	}
}

// emitter appends the samples of one time.
type emitter struct {
	app           storage.AppenderV2
	at            time.Time
	cluster       string
	job, instance string
	err           error
	// alter is that of the fleet.
	alter func(at time.Time, series labels.Labels, v float64) (float64, bool)
	// seen, if not nil, gets every sample.
	seen func(labels.Labels, float64)
}

func (e *emitter) seconds() float64 { return float64(e.at.Unix()) }

// target emits the series up of a target, and sets its labels for the following series.
func (e *emitter) target(job, instance string) {
	e.job, e.instance = job, instance
	e.add("up", 1)
}

// add appends a sample with labels that are given as names and values.
func (e *emitter) add(name string, v float64, kv ...string) {
	b := labels.NewBuilder(labels.EmptyLabels()).Set(model.MetricNameLabel, name)
	for i := 0; i < len(kv); i += 2 {
		b.Set(kv[i], kv[i+1])
	}
	b.Set("job", e.job).Set("instance", e.instance)
	if e.cluster != "" {
		b.Set("cluster", e.cluster)
	}
	series := b.Labels()
	if e.alter != nil {
		var exists bool
		if v, exists = e.alter(e.at, series, v); !exists {
			return
		}
	}
	if e.seen != nil {
		e.seen(series, v)
	}
	if e.app == nil || e.err != nil {
		return
	}
	_, e.err = e.app.Append(0, series, 0, timestamp.FromTime(e.at), v, nil, nil, storage.AOptions{})
}

func formatFloat(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Series calls seen with every series of the fleet's last minute, before the rules.
func (f *Fleet) Series(seen func(labels.Labels)) {
	f.export(&emitter{at: f.end, seen: func(series labels.Labels, _ float64) { seen(series) }})
}
