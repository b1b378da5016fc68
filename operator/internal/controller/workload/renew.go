package workload

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
)

// renewers is the number of shapes that are queried at once for each source.
const renewers = 4

// renew the answers about a shape beside decisions: what was asked for before that
// time is asked anew. A shape is asked about once at a time.
func (a *asker) renew(s shape, newer time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.plans[s]; p != nil && p.newer.Before(newer) {
		p.newer = newer
	}
	queue, ok := a.queues[s.source]
	if !ok {
		queue = workqueue.NewTyped[shape]()
		a.queues[s.source] = queue
		if a.serve != nil {
			a.serve(queue)
		}
	}
	queue.Add(s)
}

// Start renews until the context ends. It runs on the leader.
func (a *asker) Start(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	a.serveBy(func(queue workqueue.TypedInterface[shape]) {
		for range renewers {
			workers.Go(func() {
				for a.renewNext(ctx, queue) {
				}
			})
		}
	})
	defer a.end()
	wait.UntilWithContext(ctx, func(context.Context) { a.tidy() }, tidyEvery)
	return nil
}

func (a *asker) serveBy(serve func(workqueue.TypedInterface[shape])) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serve = serve
	for _, queue := range a.queues {
		serve(queue)
	}
}

// end lets every renewer end.
func (a *asker) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serve = nil
	for _, queue := range a.queues {
		queue.ShutDown()
	}
}

// renewNext waits for the next shape; false = there will be none.
func (a *asker) renewNext(ctx context.Context, queue workqueue.TypedInterface[shape]) bool {
	s, over := queue.Get()
	if over {
		return false
	}
	defer queue.Done(s)
	if ctx.Err() != nil {
		return true
	}
	p, newer := a.wanted(s)
	if p != nil {
		a.ask(ctx, p, func(h *held) bool { return h.newer(newer) })
		a.finished(p)
	}
	a.renewed(s, newer)
	return true
}

func (a *asker) finished(p *plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.done = a.now()
}

// wanted of a shape's answers; without a plan there are none that could be old.
func (a *asker) wanted(s shape) (*plan, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.plans[s]; p != nil {
		return p, p.newer
	}
	return nil, a.now()
}
