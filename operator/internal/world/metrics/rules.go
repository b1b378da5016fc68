package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
)

// Rules are recording rules in the order in which they are evaluated.
type Rules struct{ rules []promengine.Rule }

// ruleFiles are the shipped files. A file reads the series of the files before it.
var ruleFiles = []string{
	"recording-nodes.yaml", "recording-devices.yaml", "recording-shares.yaml", "recording-topology.yaml",
	"recording-owners.yaml", "recording-queues.yaml", "recording-fleet.yaml",
}

// LoadRules reads the recording rules of a folder. Files that are not shipped are the last ones.
func LoadRules(dir string) (*Rules, error) {
	files, err := filepath.Glob(filepath.Join(dir, "recording-*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no recording rules", dir)
	}
	slices.SortStableFunc(files, func(a, b string) int { return rank(a) - rank(b) })
	rules := &Rules{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		decoded, err := promengine.DecodeRules(file, content)
		if err != nil {
			return nil, err
		}
		rules.rules = append(rules.rules, decoded...)
	}
	return rules, nil
}

func rank(file string) int {
	if i := slices.Index(ruleFiles, filepath.Base(file)); i >= 0 {
		return i
	}
	return len(ruleFiles)
}

// rule is a recording rule with its last result.
type rule struct {
	promengine.Rule
	memoized *memoized
	recorded []*series
}

// evaluateRules evaluates the rules in order. As in Prometheus, a rule that fails does not affect the
// others, and its last result stays for the lookback.
func (s *Store) evaluateRules(at int64) error {
	var errs []error
	for _, r := range s.rules {
		if err := s.evaluateRule(r, at); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Record, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) evaluateRule(r *rule, at int64) error {
	if r.memoized == nil {
		r.memoized = newMemoized(s.table, r.Expr)
	}
	if s.memoizes && r.memoized.isValid(at) {
		for _, x := range r.recorded {
			if err := s.table.append(x, at, x.value); err != nil {
				return err
			}
		}
		return nil
	}
	q, err := s.engine.NewInstantQuery(context.Background(), s.table, nil, r.Expr, timestamp.Time(at))
	if err != nil {
		return err
	}
	defer q.Close()
	result := q.Exec(context.Background())
	if result.Err != nil {
		return result.Err
	}
	vector, err := result.Vector()
	if err != nil {
		return err
	}
	r.memoized.evaluated(at)
	return s.record(r, vector, at)
}

// record stores the result of a rule, and marks the series as stale that it no longer has.
func (s *Store) record(r *rule, vector promql.Vector, at int64) error {
	s.table.scrape++
	recorded := make([]*series, 0, len(vector))
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, sample := range vector {
		b.Reset(sample.Metric)
		b.Set(model.MetricNameLabel, r.Record)
		for name, v := range r.Labels {
			b.Set(name, v)
		}
		x := s.table.find(b.Labels())
		if x.scrape == s.table.scrape {
			return fmt.Errorf("two results have the labels %s", x.labels)
		}
		x.scrape = s.table.scrape
		recorded = append(recorded, x)
		if err := s.table.append(x, at, sample.F); err != nil {
			return err
		}
	}
	for _, x := range r.recorded {
		if x.scrape != s.table.scrape && !x.isStale && !x.dropped {
			if err := s.table.append(x, at, staleMarker); err != nil {
				return err
			}
		}
	}
	r.recorded = recorded
	return nil
}
