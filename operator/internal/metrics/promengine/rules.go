package promengine

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"sigs.k8s.io/yaml"
)

// Rule is a rule of a rule file. Record is empty for an alert.
type Rule struct {
	Record string            `json:"record"`
	Expr   string            `json:"expr"`
	Labels map[string]string `json:"labels"`
}

// DecodeRules decodes the recording rules of a Prometheus rule file, in order. Alerts are
// ignored. file is the name for errors.
func DecodeRules(file string, content []byte) ([]Rule, error) {
	var groups struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(content, &groups); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var rules []Rule
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				rules = append(rules, r)
			}
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%s: must contain groups with recording rules", file)
	}
	return rules, nil
}

// Sample is one sample of a series.
type Sample struct {
	Series labels.Labels
	Value  float64
}

// Storage holds series.
type Storage interface {
	storage.Queryable
	// Store adds samples, all with the same time.
	Store(ctx context.Context, at time.Time, samples []Sample) error
}

// Recorder evaluates recording rules and adds their samples to a storage.
type Recorder struct {
	engine  *promql.Engine
	storage Storage
	rules   []Rule
	// recorded are the series of each rule's last evaluation, by their text.
	recorded []map[string]labels.Labels
}

// NewRecorder returns a Recorder of the rules.
func NewRecorder(engine *promql.Engine, s Storage, rules []Rule) *Recorder {
	return &Recorder{engine: engine, storage: s, rules: rules, recorded: make([]map[string]labels.Labels, len(rules))}
}

// Evaluate evaluates the rules in order. A rule sees the samples of the rules before it.
func (r *Recorder) Evaluate(ctx context.Context, at time.Time) error {
	for i := range r.rules {
		var err error
		if r.recorded[i], err = r.record(ctx, r.rules[i], at, r.recorded[i]); err != nil {
			return fmt.Errorf("%s: %w", r.rules[i].Record, err)
		}
	}
	return nil
}

// record evaluates a rule and stores its samples. previous holds the series of the
// preceding evaluation; a series that is now missing gets a stale marker.
func (r *Recorder) record(ctx context.Context, rule Rule, at time.Time, previous map[string]labels.Labels) (map[string]labels.Labels, error) {
	result, err := Query(ctx, r.engine, r.storage, rule.Expr, at)
	if err != nil {
		return nil, err
	}
	var samples []Sample
	current := map[string]labels.Labels{}
	for _, sample := range result.Samples {
		b := labels.NewBuilder(labels.FromMap(sample.Labels)).Set(model.MetricNameLabel, rule.Record)
		for name, v := range rule.Labels {
			b.Set(name, v)
		}
		set := b.Labels()
		if _, twice := current[set.String()]; twice {
			return nil, fmt.Errorf("two results have the labels %s", set)
		}
		current[set.String()] = set
		samples = append(samples, Sample{set, sample.Value})
	}
	for key, set := range previous {
		if _, exists := current[key]; !exists {
			samples = append(samples, Sample{set, math.Float64frombits(value.StaleNaN)})
		}
	}
	return current, r.storage.Store(ctx, at, samples)
}
