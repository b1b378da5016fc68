package querycache

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// renewers is the number of shapes that are queried at once for each source.
const refreshWorkers = 4

// renew the answers about a shape beside decisions: what was asked for before that
// time is asked anew. A shape is asked about once at a time.
func (a *Cache) Refresh(s Key, newer time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.plans[s]; p != nil && p.refreshAfter.Before(newer) {
		p.refreshAfter = newer
	}
	queue, ok := a.queues[s.source]
	if !ok {
		queue = workqueue.NewTyped[Key]()
		a.queues[s.source] = queue
		if a.startWorkers != nil {
			a.startWorkers(queue)
		}
	}
	queue.Add(s)
}

// Start renews until the context ends. It runs on the leader.
func (a *Cache) Start(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	a.runWorkers(func(queue workqueue.TypedInterface[Key]) {
		for range refreshWorkers {
			workers.Go(func() {
				for a.refreshNext(ctx, queue) {
				}
			})
		}
	})
	defer a.stopWorkers()
	wait.UntilWithContext(ctx, func(context.Context) { a.cleanUp() }, timing.CleanupInterval)
	return nil
}

func (a *Cache) runWorkers(serve func(workqueue.TypedInterface[Key])) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.startWorkers = serve
	for _, queue := range a.queues {
		serve(queue)
	}
}

// end lets every renewer end.
func (a *Cache) stopWorkers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.startWorkers = nil
	for _, queue := range a.queues {
		queue.ShutDown()
	}
}

// renewNext waits for the next shape; false = there will be none.
func (a *Cache) refreshNext(ctx context.Context, queue workqueue.TypedInterface[Key]) bool {
	s, over := queue.Get()
	if over {
		return false
	}
	defer queue.Done(s)
	if ctx.Err() != nil {
		return true
	}
	p, newer := a.refreshTarget(s)
	if p != nil {
		a.query(ctx, p, func(h *cachedResult) bool { return h.isNewerThan(newer) })
		a.markCompleted(p)
	}
	a.OnRefreshed(s, newer)
	return true
}

func (a *Cache) markCompleted(p *queryPlan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.completedAt = a.now()
}

// wanted of a shape's answers; without a plan there are none that could be old.
func (a *Cache) refreshTarget(s Key) (*queryPlan, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.plans[s]; p != nil {
		return p, p.refreshAfter
	}
	return nil, a.now()
}
