package metrics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
	exprs "plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Mode is how a Store calculates the results of rules.
type Mode int

const (
	// ClosedForm calculates the results of the rules that gates and simple policies read.
	ClosedForm Mode = iota
	// RulesEngine evaluates Options.Rules in Prometheus's engine.
	RulesEngine
)

const (
	defaultScrapeInterval = 15 * time.Second
	// defaultRetention is long enough for the ranges of the rules that do not count days.
	defaultRetention = 15 * time.Minute
	maxSamples       = 50_000_000
	queryTimeout     = 2 * time.Minute
)

// Options configure a Store.
type Options struct {
	Mode Mode
	// Rules are required in the mode RulesEngine.
	Rules *Rules
	// Retention is the age up to which samples are kept, at least 6 minutes. Default 15 minutes.
	Retention time.Duration
	// ScrapeInterval is the step of subqueries without one. Default 15 s.
	ScrapeInterval time.Duration
	// Devices: ClosedForm also records the rules about single devices and owners that ReclaimPolicies and JobProfiles read.
	Devices bool
	// Topology: ClosedForm also records the domains of nodes.
	Topology bool
}

// Store is the metrics store of all clusters. It is safe for concurrent use.
type Store struct {
	mode      Mode
	retention int64
	engine    *promql.Engine

	mu        sync.Mutex
	table     *table
	rules     []*rule // none in ClosedForm
	memo      memo
	memoizes  bool // false only in tests
	ofDevices bool // see Options.Devices
	domains   bool // see Options.Topology
	clusters  map[string]*cluster
	names     []string // of the clusters, in the order of their first scrape
	dropped   int64    // time of the last drop

	devices   map[string][]string // uuids by cluster and node
	sanitized map[string]string
}

// cluster has the targets of a cluster, by their instance.
type cluster struct {
	name    string
	targets map[string]*target
	state   *clusterState
}

// NewStore returns a Store without samples.
func NewStore(o Options) (*Store, error) {
	if o.ScrapeInterval <= 0 {
		o.ScrapeInterval = defaultScrapeInterval
	}
	if o.Retention == 0 {
		o.Retention = defaultRetention
	}
	if o.Retention < 6*time.Minute {
		return nil, errors.New("the retention must be at least 6 minutes, because queries look back 5 minutes")
	}
	s := &Store{
		mode: o.Mode, retention: o.Retention.Milliseconds(), table: newTable(), memo: memo{}, memoizes: true, ofDevices: o.Devices, domains: o.Topology, clusters: map[string]*cluster{}, dropped: math.MinInt64,
		devices: map[string][]string{}, sanitized: map[string]string{},
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: maxSamples, Timeout: queryTimeout, EnableAtModifier: true, EnableNegativeOffset: true,
			NoStepSubqueryIntervalFn: func(int64) int64 { return o.ScrapeInterval.Milliseconds() },
			Parser:                   parser.NewParser(exprs.Options),
		}),
	}
	if o.Mode == RulesEngine {
		if o.Rules == nil {
			return nil, errors.New("the mode RulesEngine requires rules")
		}
		for _, r := range o.Rules.rules {
			s.rules = append(s.rules, &rule{Rule: r})
		}
	}
	return s, nil
}

func (s *Store) cluster(name string) *cluster {
	c := s.clusters[name]
	if c == nil {
		c = &cluster{name: name, targets: map[string]*target{}, state: newClusterState(name)}
		c.state.hasDevices = s.ofDevices
		s.clusters[name] = c
		s.names = append(s.names, name)
	}
	return c
}

func (c *cluster) target(job, instance string, part Part) *target {
	t := c.targets[instance]
	if t == nil {
		t = &target{cluster: c.name, job: job, instance: instance, part: part}
		c.targets[instance] = t
	}
	return t
}

// Scrape stores the series of a cluster, all with the same time. The times of the scrapes of a cluster
// must increase.
func (s *Store) Scrape(at time.Time, snap Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap.Cluster == "" {
		return errors.New("the snapshot has no cluster")
	}
	ms := timestamp.FromTime(at)
	s.table.scrape++
	err := s.scrape(s.cluster(snap.Cluster), ms, &snap)
	s.dropOld(ms)
	return err
}

func (s *Store) scrape(c *cluster, at int64, snap *Snapshot) error {
	pods := map[string][]*Pod{}
	for i := range snap.Pods {
		if p := &snap.Pods[i]; p.Node != "" {
			pods[p.Node] = append(pods[p.Node], p)
		}
	}
	errs := []error{}
	// The series of Extra precede those that they replace, and end after them.
	extra := s.table.export(c.target("", "", ""), at)
	for _, x := range snap.Extra {
		extra.add(x.Name, x.Value, pairs(x.Labels)...)
	}
	has := map[string]bool{"": true}
	scrape := func(job, instance string, part Part, failed bool, export func(*export)) {
		has[instance] = true
		errs = append(errs, s.scrapeTarget(c.target(job, instance, part), at, failed, export))
	}
	failed := func(part Part) bool {
		return slices.ContainsFunc(snap.Failed, func(f Part) bool { return f.includes(part) })
	}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if n.Resource == "" {
			continue
		}
		part := NodeExporter(n.Name)
		isDown := n.Silent || failed(part)
		data := exporterData{collected: seconds(collectedAt(snap, n, at)), resource: n.Resource, model: n.Model, hasDevices: !n.KubeletDown, deviceCounts: countDevices(n)}
		if s.ofDevices {
			data.devices = s.devicesOf(snap, n, pods[n.Name])
		}
		c.state.exporter(n.Name).add(state[exporterData]{at, !isDown, data})
		scrape(exporterJob, n.Name+":9400", part, isDown, func(e *export) { s.exportNode(e, snap, n, pods[n.Name]) })
	}
	isDown := failed(KubeState)
	c.state.kube.add(state[kubeData]{at, !isDown, s.kubeDataOf(snap, pods)})
	scrape(kubeStateJob, "kube-state-metrics:8080", KubeState, isDown, func(e *export) { s.exportKube(e, snap, pods) })
	isDown = failed(Kueue)
	c.state.kueue.add(state[kueueData]{at, !isDown, kueueDataOf(snap)})
	scrape(kueueJob, "kueue-controller-manager:8443", Kueue, isDown, func(e *export) { exportKueue(e, snap) })
	for _, t := range c.sortedTargets() {
		if !has[t.instance] {
			errs = append(errs, s.removeTarget(c, t, at))
		}
	}
	return errors.Join(append(errs, extra.finish())...)
}

// scrapeTarget stores what export exports. If the scrape failed, the series of the target end.
func (s *Store) scrapeTarget(t *target, at int64, failed bool, exports func(*export)) error {
	e := s.table.export(t, at)
	if !failed {
		exports(e)
	}
	return errors.Join(s.setUp(t, at, number(!failed)), e.finish())
}

func (s *Store) setUp(t *target, at int64, v float64) error {
	if t.instance == "" {
		return nil
	}
	if t.up == nil || t.up.dropped {
		t.up = s.table.export(t, at).find("up", nil)
	}
	return s.table.append(t.up, at, v)
}

// removeTarget ends the series of a target that no longer exists.
func (s *Store) removeTarget(c *cluster, t *target, at int64) error {
	delete(c.targets, t.instance)
	if node, ok := strings.CutPrefix(string(t.part), string(NodeExporter(""))); ok {
		c.state.exporter(node).add(state[exporterData]{at: at})
	}
	return errors.Join(s.table.export(t, at).finish(), s.setUp(t, at, staleMarker))
}

// sortedTargets returns the targets in an order that does not depend on the hashes of a map.
func (c *cluster) sortedTargets() []*target {
	all := make([]*target, 0, len(c.targets))
	for _, t := range c.targets {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *target) int { return strings.Compare(a.instance, b.instance) })
	return all
}

// ScrapeFailed records that a part of the targets of a cluster did not respond to a scrape: their
// series end, and up is 0.
func (s *Store) ScrapeFailed(at time.Time, cluster string, part Part) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := timestamp.FromTime(at)
	s.table.scrape++
	c := s.cluster(cluster)
	var errs []error
	for _, t := range c.sortedTargets() {
		if !part.includes(t.part) {
			continue
		}
		errs = append(errs, s.scrapeTarget(t, ms, true, nil))
		if node, ok := strings.CutPrefix(string(t.part), string(NodeExporter(""))); ok {
			c.state.exporter(node).add(state[exporterData]{at: ms})
		}
	}
	if part.includes(KubeState) {
		c.state.kube.add(state[kubeData]{at: ms})
	}
	if part.includes(Kueue) {
		c.state.kueue.add(state[kueueData]{at: ms})
	}
	s.dropOld(ms)
	return errors.Join(errs...)
}

// Evaluate evaluates the rules at a time, which must be later than that of the last evaluation.
func (s *Store) Evaluate(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := timestamp.FromTime(at)
	s.table.scrape++
	defer s.dropOld(ms)
	if s.mode == RulesEngine {
		return s.evaluateRules(ms)
	}
	var errs []error
	for _, name := range s.names {
		c := s.clusters[name]
		errs = append(errs, c.state.evaluate(s.table.export(c.state.recorded, ms)))
	}
	return errors.Join(errs...)
}

// dropOld drops samples that are older than the retention, once in a while.
func (s *Store) dropOld(at int64) {
	if s.dropped == math.MinInt64 || at-s.dropped >= s.retention/4 {
		s.dropped = at
		s.table.drop(at - s.retention)
	}
}

// Query evaluates an instant query. The caller must not change the samples of the result.
func (s *Store) Query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	return s.query(ctx, expr, at, nil)
}

// query evaluates an instant query without the series of some clusters.
func (s *Store) query(ctx context.Context, expr string, at time.Time, hide []string) (query.Result, error) {
	if err := ctx.Err(); err != nil {
		return query.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ms := memoKey{expr: expr, hide: strings.Join(hide, "\n")}, timestamp.FromTime(at)
	if r, ok := s.memo.find(key, ms); ok && s.memoizes {
		return r, nil
	}
	result, err := promengine.Query(ctx, s.engine, s.table.without(hide), expr, at)
	if err == nil {
		s.memo.remember(s.table, key, ms, result)
	}
	return result, err
}

// rangeQuery evaluates a range query.
func (s *Store) rangeQuery(ctx context.Context, expr string, start, end time.Time, step time.Duration, hide []string) (promql.Matrix, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.engine.NewRangeQuery(ctx, s.table.without(hide), nil, expr, start, end, step)
	if err != nil {
		return nil, err
	}
	result := q.Exec(ctx) // a closed query would reuse its result
	if result.Err != nil {
		return nil, result.Err
	}
	return result.Matrix()
}

// without returns the storage without the series of some clusters.
func (t *table) without(hide []string) storage.Queryable {
	if len(hide) == 0 {
		return t
	}
	names := make([]string, 0, len(hide))
	for _, name := range hide {
		names = append(names, regexp.QuoteMeta(name))
	}
	matcher, err := labels.NewMatcher(labels.MatchNotRegexp, clusterLabel, strings.Join(names, "|"))
	if err != nil {
		panic(fmt.Sprintf("quoted names are no regular expression: %v", err))
	}
	return hidden{t, matcher}
}

// pairs returns labels as names and values, sorted.
func pairs(set map[string]string) []string {
	kv := make([]string, 0, 2*len(set))
	for name, v := range set {
		kv = append(kv, name, v)
	}
	sortPairs(kv)
	return kv
}
