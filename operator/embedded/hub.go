package embedded

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
	"plimsoll.dev/plimsoll/operator/internal/whatif"
)

// clusterLabel is the label of the series with the cluster's name.
const clusterLabel = "cluster"

// Times of the ledger, for metrics that are scraped each second.
const (
	ledgerSettle = 3 * time.Second
	ledgerTTL    = time.Minute
)

// Source runs instant queries, as Prometheus.Query does.
type Source = query.QuerierFunc

// HubOptions configure a Hub.
type HubOptions struct {
	Policy, Gate Manifest
	Clusters     []string
	Source       Source
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Hub scores clusters and decides about jobs. It is safe for concurrent use.
type Hub struct {
	policy   v1alpha1.ScoringPolicy
	compiled *score.Policy
	gate     v1alpha1.PlacementGate
	clusters *clustermap.Mapping
	source   Source
	ledger   *ledger.Ledger
	now      func() time.Time

	asking sync.Mutex
	// fleet has the query results since measuredAt.
	fleet      *whatif.Fleet
	measuredAt time.Time

	mu     sync.Mutex
	last   *score.Result
	lastAt time.Time
	scores map[string]map[string]gate.Score // by cluster and gate.ScoreKey
}

// NewHub decodes the manifests.
func NewHub(ctx context.Context, o HubOptions) (*Hub, error) {
	h := &Hub{
		clusters: clustermap.FromNames(clusterLabel, o.Clusters), source: o.Source, now: o.Now,
		ledger: ledger.New(ledgerSettle, ledgerTTL), scores: map[string]map[string]gate.Score{},
	}
	if h.now == nil {
		h.now = time.Now
	}
	if err := o.Policy.decode(ctx, &h.policy); err != nil {
		return nil, fmt.Errorf("scoring policy: %w", err)
	}
	if err := o.Gate.decode(ctx, &h.gate); err != nil {
		return nil, fmt.Errorf("placement gate: %w", err)
	}
	spec, compiled, err := round.Compile(&h.policy.Spec, clusterLabel)
	if err != nil {
		return nil, fmt.Errorf("scoring policy: %w", err)
	}
	h.policy.Spec, h.compiled = *spec, compiled
	return h, nil
}

// Run runs a round in each period of the policy until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	tick := time.NewTicker(h.period())
	defer tick.Stop()
	for {
		h.Round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *Hub) period() time.Duration { return time.Duration(h.policy.Spec.PeriodSeconds) * time.Second }

// Round runs one round of the policy and stores its scores.
func (h *Hub) Round(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	report := round.Run(ctx, round.Request{
		Spec: &h.policy.Spec, Policy: h.compiled, Querier: h.source, Clusters: h.clusters, Previous: h.last, Now: now,
	})
	if ctx.Err() != nil { // the queries were canceled
		return
	}
	h.last, h.lastAt = report.Result, now
	validUntil := now.Add(h.period() * time.Duration(h.policy.Spec.ValidForPeriods))
	for i, cluster := range h.last.Clusters {
		h.scores[cluster] = map[string]gate.Score{}
		for j, cell := range h.last.Row(i) {
			if cell.State == score.Omitted {
				continue
			}
			h.scores[cluster][gate.ScoreKey(h.policy.Name, h.last.Names[j])] = gate.Score{Value: cell.Value, Written: now, ValidUntil: validUntil}
		}
	}
}

// LastRound returns when the last round started; zero = none yet.
func (h *Hub) LastRound() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastAt
}

// Scores returns a cluster's scores by name.
func (h *Hub) Scores(cluster string) map[string]int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	scores := map[string]int32{}
	if h.last == nil {
		return scores
	}
	for _, name := range h.last.Names {
		if s, ok := h.scores[cluster][gate.ScoreKey(h.policy.Name, name)]; ok {
			scores[name] = s.Value
		}
	}
	return scores
}

// eligible returns all clusters with their scores.
func (h *Hub) eligible() (clusters []gatestate.Cluster) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range h.clusters.Names() {
		clusters = append(clusters, gatestate.Cluster{Name: name, Scores: maps.Clone(h.scores[name])})
	}
	return clusters
}
