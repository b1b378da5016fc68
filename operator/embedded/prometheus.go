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

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"golang.org/x/sync/errgroup"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

const (
	// scrapeInterval is the time between two scrapes, and between two evaluations of the rules.
	scrapeInterval = time.Second
	// retention is the age up to which samples are kept. The rules that the demo shows read at
	// most 10 minutes.
	retention = 15 * time.Minute
	// dropInterval is the time after which old samples are dropped again.
	dropInterval = time.Minute
)

var scraper = &http.Client{Timeout: scrapeInterval}

// Target is an endpoint that serves metrics.
type Target struct {
	// Cluster is the value of the label cluster that the target's series get.
	Cluster string
	// Address is the host:port, which is also the value of the label instance.
	Address string
}

// PrometheusOptions configure a Prometheus.
type PrometheusOptions struct {
	// RuleFiles have the recording rules. A file may read the series of the files before it.
	RuleFiles []string
	Targets   []Target
	Logger    *slog.Logger
}

// Prometheus scrapes targets into memory and evaluates recording rules.
type Prometheus struct {
	series  *promengine.Memory
	engine  *promql.Engine
	rules   *promengine.Recorder
	targets []Target
	logger  *slog.Logger
}

// NewPrometheus loads the rules. Run starts the scrapes.
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
	series := promengine.NewMemory()
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: o.Logger, MaxSamples: 1_000_000, Timeout: 10 * time.Second,
		NoStepSubqueryIntervalFn: func(int64) int64 { return scrapeInterval.Milliseconds() }, Parser: parser.NewParser(parser.Options{}),
	})
	return &Prometheus{series: series, engine: engine, rules: promengine.NewRecorder(engine, series, rules), targets: o.Targets, logger: o.Logger}, nil
}

// Run scrapes the targets and evaluates the rules each second until ctx ends.
func (p *Prometheus) Run(ctx context.Context) error {
	tick, drop := time.NewTicker(scrapeInterval), time.NewTicker(dropInterval)
	defer tick.Stop()
	defer drop.Stop()
	for {
		if err := p.Collect(ctx); err != nil && ctx.Err() == nil {
			p.logger.Error("Collection failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return p.engine.Close()
		case now := <-drop.C:
			p.series.DropBefore(now.Add(-retention))
		case <-tick.C:
		}
	}
}

// Collect scrapes all targets and then evaluates the rules, all with the same timestamp.
// A target that fails does not affect the others. Run calls it each second.
func (p *Prometheus) Collect(ctx context.Context) error {
	at := time.Now()
	bodies, errs := make([][]byte, len(p.targets)), make([]error, len(p.targets))
	var g errgroup.Group
	for i, t := range p.targets {
		g.Go(func() error { bodies[i], errs[i] = fetch(ctx, t.Address); return nil })
	}
	_ = g.Wait() // always nil: each target has its own error
	for i, t := range p.targets {
		if errs[i] == nil {
			errs[i] = eachSample(bodies[i], t, func(series labels.Labels, value float64) error {
				return p.series.Append(series, at, value, nil)
			})
		}
	}
	return errors.Join(append(errs, p.rules.Evaluate(ctx, at))...)
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

// eachSample calls add for each sample of a target, with the labels cluster and instance.
func eachSample(body []byte, t Target, add func(series labels.Labels, value float64) error) error {
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
		series = labels.NewBuilder(series).Set(clusterLabel, t.Cluster).Set(model.InstanceLabel, t.Address).Labels()
		if err := add(series, value); err != nil {
			return err
		}
	}
}

// Query evaluates an instant query. It is a Source.
func (p *Prometheus) Query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	return promengine.Query(ctx, p.engine, p.series, expr, at)
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
