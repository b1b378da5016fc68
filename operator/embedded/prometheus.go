package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"golang.org/x/sync/errgroup"

	"plimsoll.dev/plimsoll/operator/internal/promengine"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// scrapeInterval is the time between two scrapes, and between two evaluations of the rules.
const scrapeInterval = time.Second

var scraper = &http.Client{Timeout: scrapeInterval}

// Target is an endpoint that serves metrics.
type Target struct {
	// Cluster is the value of the label cluster that the target's series get.
	Cluster string
	// Address is the host:port.
	Address string
}

// PrometheusOptions configure a Prometheus.
type PrometheusOptions struct {
	// Dir is the folder of the TSDB.
	Dir string
	// RuleFiles have the recording rules. A file may read the series of the files before it.
	RuleFiles []string
	Targets   []Target
	Logger    *slog.Logger
}

// Prometheus scrapes targets into a TSDB and evaluates recording rules.
type Prometheus struct {
	db      *tsdb.DB
	engine  *promql.Engine
	rules   *promengine.Recorder
	targets []Target
	logger  *slog.Logger
}

// NewPrometheus opens the TSDB and loads the rules. Run starts the scrapes.
func NewPrometheus(o PrometheusOptions) (*Prometheus, error) {
	var rules []promengine.Rule
	for _, file := range o.RuleFiles {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		decoded, err := promengine.DecodeRules(file, content)
		if err != nil {
			return nil, err
		}
		rules = append(rules, decoded...)
	}
	db, err := tsdb.Open(o.Dir, o.Logger, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, fmt.Errorf("open the TSDB: %w", err)
	}
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: o.Logger, MaxSamples: 1_000_000, Timeout: 10 * time.Second,
		NoStepSubqueryIntervalFn: func(int64) int64 { return scrapeInterval.Milliseconds() }, Parser: parser.NewParser(parser.Options{}),
	})
	return &Prometheus{db: db, engine: engine, rules: promengine.NewRecorder(engine, tsdbStorage{db}, rules), targets: o.Targets, logger: o.Logger}, nil
}

// Run scrapes the targets and evaluates the rules each second until ctx ends, and then
// closes the TSDB.
func (p *Prometheus) Run(ctx context.Context) error {
	tick := time.NewTicker(scrapeInterval)
	defer tick.Stop()
	for {
		if err := p.collect(ctx); err != nil && ctx.Err() == nil {
			p.logger.Error("Collection failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return p.db.Close()
		case <-tick.C:
		}
	}
}

// collect scrapes all targets and then evaluates the rules, all with the same timestamp.
// A target that fails does not affect the others.
func (p *Prometheus) collect(ctx context.Context) error {
	at := time.Now()
	bodies, errs := make([][]byte, len(p.targets)), make([]error, len(p.targets))
	var g errgroup.Group
	for i, t := range p.targets {
		g.Go(func() error { bodies[i], errs[i] = fetch(ctx, t.Address); return nil })
	}
	_ = g.Wait() // always nil: each target has its own error
	app := p.db.AppenderV2(ctx)
	for i, t := range p.targets {
		if errs[i] == nil {
			errs[i] = appendSamples(app, bodies[i], t.Cluster, at)
		}
	}
	return errors.Join(append(errs, app.Commit(), p.rules.Evaluate(ctx, at))...)
}

// fetch returns the metrics of a target in Prometheus's text format.
func fetch(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain; version=0.0.4")
	resp, err := scraper.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s", address, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// appendSamples appends the samples of an exposition with the label cluster.
func appendSamples(app storage.AppenderV2, body []byte, cluster string, at time.Time) error {
	metrics := textparse.NewPromParser(body, labels.NewSymbolTable(), false)
	for {
		entry, err := metrics.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case entry != textparse.EntrySeries:
			continue
		}
		var series labels.Labels
		metrics.Labels(&series)
		_, _, value := metrics.Series()
		series = labels.NewBuilder(series).Set(clusterLabel, cluster).Labels()
		if err := appendSample(app, series, at, value); err != nil {
			return err
		}
	}
}

func appendSample(app storage.AppenderV2, series labels.Labels, at time.Time, value float64) error {
	_, err := app.Append(0, series, 0, timestamp.FromTime(at), value, nil, nil, storage.AOptions{})
	return err
}

// tsdbStorage stores the samples of recording rules in a TSDB.
type tsdbStorage struct{ *tsdb.DB }

// Store implements promengine.Storage. It stores all samples or none.
func (s tsdbStorage) Store(ctx context.Context, at time.Time, samples []promengine.Sample) error {
	app := s.AppenderV2(ctx)
	for _, sample := range samples {
		if err := appendSample(app, sample.Series, at, sample.Value); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
	return app.Commit()
}

// Query evaluates an instant query. It is a Source.
func (p *Prometheus) Query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	return promengine.Query(ctx, p.engine, p.db, expr, at)
}

// ByCluster evaluates an instant query now and returns its values by the label cluster.
func (p *Prometheus) ByCluster(ctx context.Context, expr string) (map[string]float64, error) {
	result, err := p.Query(ctx, expr, time.Now())
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for _, s := range result.Samples {
		values[s.Labels[clusterLabel]] = s.Value
	}
	return values, nil
}
