package scripted

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"sigs.k8s.io/yaml"
)

// rule is a recording rule or an alert, with its state.
type rule struct {
	Record        string            `json:"record"`
	Alert         string            `json:"alert"`
	Expr          string            `json:"expr"`
	For           model.Duration    `json:"for"`
	KeepFiringFor model.Duration    `json:"keep_firing_for"`
	Labels        map[string]string `json:"labels"`

	interval time.Duration
	// written are the series of the last evaluation, by their text.
	written map[string]labels.Labels
	active  map[string]*activeAlert
}

// activeAlert is an alert whose expression returned its series.
type activeAlert struct {
	series          labels.Labels
	since, lastTrue time.Time
	firing          bool
}

func (r *rule) name() string { return r.Record + r.Alert }

// readRules reads rule files. The interval of a group is rounded up to whole steps.
func readRules(files []string) ([]*rule, error) {
	var all []*rule
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var groups struct {
			Groups []struct {
				Interval model.Duration `json:"interval"`
				Rules    []*rule        `json:"rules"`
			} `json:"groups"`
		}
		if err := yaml.Unmarshal(content, &groups); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				r.interval = max(ScrapeInterval, time.Duration(g.Interval).Round(ScrapeInterval))
				r.active = map[string]*activeAlert{}
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// evaluate evaluates a rule and stores its series. Series that are missing now get a stale
// marker.
func (p *Prometheus) evaluate(ctx context.Context, r *rule, at time.Time) error {
	result, err := p.instant(ctx, r.Expr, at)
	if err != nil {
		return err
	}
	vector, ok := result.(promql.Vector)
	if !ok {
		return fmt.Errorf("the result is a %s, not a vector", result.Type())
	}
	samples := r.samples(vector, at)
	app, current := p.db.AppenderV2(ctx), map[string]labels.Labels{}
	for _, s := range samples {
		if _, err := app.Append(0, s.Metric, 0, timestamp.FromTime(at), s.F, nil, nil, storage.AOptions{}); err != nil {
			return err
		}
		current[s.Metric.String()] = s.Metric
	}
	for _, key := range slices.Sorted(maps.Keys(r.written)) {
		if _, exists := current[key]; exists {
			continue
		}
		if _, err := app.Append(0, r.written[key], 0, timestamp.FromTime(at), math.Float64frombits(value.StaleNaN), nil, nil, storage.AOptions{}); err != nil {
			return err
		}
	}
	r.written = current
	return app.Commit()
}

// samples of a rule for the result of its expression.
func (r *rule) samples(result promql.Vector, at time.Time) []promql.Sample {
	var samples []promql.Sample
	for _, s := range result {
		b := labels.NewBuilder(s.Metric).Del(model.MetricNameLabel)
		for name, v := range r.Labels {
			b.Set(name, v)
		}
		if r.Record != "" {
			samples = append(samples, promql.Sample{Metric: b.Set(model.MetricNameLabel, r.Record).Labels(), F: s.F})
			continue
		}
		series := b.Set(model.MetricNameLabel, "ALERTS").Set("alertname", r.Alert).Labels()
		a := r.active[series.String()]
		if a == nil {
			a = &activeAlert{series: series, since: at}
			r.active[series.String()] = a
		}
		a.lastTrue = at
	}
	for key, a := range r.active {
		if a.lastTrue.Before(at) && (!a.firing || at.Sub(a.lastTrue) >= time.Duration(r.KeepFiringFor)) {
			delete(r.active, key)
			continue
		}
		a.firing = a.firing || at.Sub(a.since) >= time.Duration(r.For)
		state := map[bool]string{false: "pending", true: "firing"}[a.firing]
		samples = append(samples, promql.Sample{Metric: labels.NewBuilder(a.series).Set("alertstate", state).Labels(), F: 1})
	}
	return samples
}

func (p *Prometheus) instant(ctx context.Context, expr string, at time.Time) (parser.Value, error) {
	q, err := p.engine.NewInstantQuery(ctx, p.db, nil, expr, at)
	if err != nil {
		return nil, err
	}
	return executed(ctx, q)
}

// RuleFiles returns the shipped rule files in a folder, recording rules first. A rule may read
// a rule of a later file: it then gets the result of the last evaluation, as in Prometheus.
func RuleFiles(folder string) ([]string, error) {
	var files []string
	for _, pattern := range []string{"recording-*.yaml", "alerts-*.yaml"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has no files %s", folder, pattern)
		}
		files = append(files, found...)
	}
	return files, nil
}
