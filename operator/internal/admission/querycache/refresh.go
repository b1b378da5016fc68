package querycache

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// refreshWorkers is the number of concurrent refreshes for each source.
const refreshWorkers = 4

// Refresh enqueues a refresh of the key's results older than newerThan, and does not wait.
// If the key is enqueued already, the later newerThan applies. Without a plan for the key
// there is nothing to query, but the OnRefreshed callback runs as well.
func (c *Cache) Refresh(key gatestate.QueryKey, newerThan time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.plans[key]; p != nil && p.refreshAfter.Before(newerThan) {
		p.refreshAfter = newerThan
	}
	c.queueOf(key.Source).Add(key)
}

// queueOf returns the queue of a source, in which namespaces take turns. It creates the queue
// on the first use.
func (c *Cache) queueOf(source string) workqueue.TypedInterface[gatestate.QueryKey] {
	queue, ok := c.queues[source]
	if !ok {
		queue = fairqueue.New(func(k gatestate.QueryKey) string { return k.Namespace })
		c.queues[source] = queue
		if c.startWorkers != nil {
			c.startWorkers(queue)
		}
	}
	return queue
}

// Start runs the refresh workers and the cleanup until ctx ends. It implements
// manager.Runnable and runs on the leader only.
func (c *Cache) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("query-cache"))
	var workers sync.WaitGroup
	defer workers.Wait()
	c.runWorkers(func(queue workqueue.TypedInterface[gatestate.QueryKey]) {
		for range refreshWorkers {
			workers.Go(func() {
				for c.refreshNext(ctx, queue) {
				}
			})
		}
	})
	defer c.stopWorkers()
	workers.Go(func() { wait.UntilWithContext(ctx, c.refreshHolders, timing.HolderInterval) })
	wait.UntilWithContext(ctx, func(context.Context) { c.cleanUp() }, timing.CleanupInterval)
	return nil
}

// runWorkers calls start for each queue that exists or is created later.
func (c *Cache) runWorkers(start func(workqueue.TypedInterface[gatestate.QueryKey])) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startWorkers = start
	for _, queue := range c.queues {
		start(queue)
	}
}

// stopWorkers lets the workers end after their current key.
func (c *Cache) stopWorkers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startWorkers = nil
	for _, queue := range c.queues {
		queue.ShutDown()
	}
}

// refreshNext waits for the next key of the queue and refreshes its results. It returns
// false after the queue has shut down.
func (c *Cache) refreshNext(ctx context.Context, queue workqueue.TypedInterface[gatestate.QueryKey]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	p, newerThan := c.refreshTarget(key)
	if p != nil {
		refresh := planFetch{cache: c, plan: p, isServable: func(r *cachedResult) bool { return r.isNewerThan(newerThan) }}
		refresh.queryPlan(ctx)
		c.markCompleted(p)
	}
	c.mu.Lock()
	onRefreshed := c.onRefreshed
	c.mu.Unlock()
	onRefreshed(key, newerThan)
	return true
}

// refreshTarget returns the plan of a key and the oldest permitted start of its queries.
// Without a plan it returns nil and now: no old result exists.
func (c *Cache) refreshTarget(key gatestate.QueryKey) (*queryPlan, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.plans[key]; p != nil {
		return p, p.refreshAfter
	}
	return nil, c.now()
}

func (c *Cache) markCompleted(p *queryPlan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.completedAt = c.now()
}
