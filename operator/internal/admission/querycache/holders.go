package querycache

import (
	"context"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// sourceLabel is a source with the label of its series that carries the cluster.
type sourceLabel struct{ source, label string }

// refreshHolders reports to the ledger how many pods of admitted workloads hold devices. It
// sends two queries to each source in use, and none if no workload is on its way. If a query
// fails, the ledger goes by the times of admission and PodsReady.
func (c *Cache) refreshHolders(ctx context.Context) {
	owners := c.ledger.AwaitedHolders()
	if len(owners) == 0 {
		return
	}
	for s := range c.sourcesInUse() {
		queriedAt := c.now()
		holders, err := c.holdersOf(ctx, s, owners, queriedAt)
		if err != nil {
			log.FromContext(ctx).V(1).Info("Querying the holders of devices failed", "source", s.source, "error", err.Error())
			continue
		}
		c.ledger.MarkHeld(holders, queriedAt)
	}
}

func (c *Cache) sourcesInUse() map[sourceLabel]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sources := map[sourceLabel]bool{}
	for key := range c.plans {
		sources[sourceLabel{key.Source, key.ClusterLabel}] = true
	}
	return sources
}

// holdersOf queries one source. A cluster that the response says it lacks is left out. If the response lacks some
// cluster that it does not name, those count that report owners at the same time: too few holders keep a
// reservation for longer, while none at all would let the time of admission end it.
func (c *Cache) holdersOf(ctx context.Context, s sourceLabel, owners []ledger.Owner, queriedAt time.Time) (ledger.Holders, error) {
	source := c.querySource(ctx, s.source, s.label)
	reported := &cachedResult{queriedAt: queriedAt}
	if err := source.fetch(ctx, gate.OwnersReportedQuery(s.label), reported); err != nil || len(reported.values) == 0 {
		return nil, err
	}
	response, err := source.query(query.WithAllLabels(ctx), gate.HolderQuery(s.label, owners), queriedAt)
	if err != nil {
		return nil, err
	}
	holders := ledger.Holders{}
	for cluster := range reported.values {
		if _, failed := response.Failed[cluster]; !failed {
			holders[cluster] = map[ledger.Owner]int64{}
		}
	}
	for owner, pods := range valuesBy(&source, response.Samples, ownerOf) {
		for cluster, n := range pods {
			if holders[cluster] != nil && n.Known {
				holders[cluster][owner] = int64(n.Value)
			}
		}
	}
	return holders, nil
}

// HolderClusters returns the clusters where pods of the owners hold devices, sorted. It sends one
// query to the source of the key, and stores no result.
func (c *Cache) HolderClusters(ctx context.Context, key gatestate.QueryKey, owners []ledger.Owner) ([]string, error) {
	source := c.querySource(ctx, key.Source, key.ClusterLabel)
	response, err := source.query(query.WithAllLabels(ctx), gate.HolderQuery(key.ClusterLabel, owners), c.now())
	if err != nil {
		return nil, err
	}
	holding := map[string]bool{}
	for owner, pods := range valuesBy(&source, response.Samples, ownerOf) {
		if !slices.Contains(owners, owner) {
			continue
		}
		for cluster, n := range pods {
			holding[cluster] = holding[cluster] || n.Known && n.Value > 0
		}
	}
	maps.DeleteFunc(holding, func(_ string, holds bool) bool { return !holds })
	return slices.Sorted(maps.Keys(holding)), nil
}

func ownerOf(s query.Sample) ledger.Owner {
	return ledger.Owner{Namespace: s.Label(gate.LabelNamespace), Kind: s.Label(gate.LabelOwnerKind), Name: s.Label(gate.LabelOwnerName)}
}
