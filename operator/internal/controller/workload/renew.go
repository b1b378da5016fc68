package workload

import (
	"context"
	"sync"
	"time"
)

const (
	// renewers are how many shapes are asked about at once beside decisions.
	renewers = 4
	// tidyEvery so often unused answers are forgotten.
	tidyEvery = 10 * time.Second
)

// renew the answers about a shape beside decisions: what was asked for before that
// time is asked anew. A shape is asked about once at a time.
func (a *asker) renew(s shape, newer time.Time) {
	a.mu.Lock()
	if p := a.plans[s]; p != nil && p.newer.Before(newer) {
		p.newer = newer
	}
	a.mu.Unlock()
	a.queue.Add(s)
}

// NeedLeaderElection: explain asks on every replica.
func (a *asker) NeedLeaderElection() bool { return false }

// Start renews until the context ends.
func (a *asker) Start(ctx context.Context) error {
	var workers sync.WaitGroup
	for range renewers {
		workers.Go(func() {
			for a.renewNext(ctx) {
			}
		})
	}
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			a.queue.ShutDown()
			workers.Wait()
			return nil
		case <-ticker.C:
			a.tidy()
		}
	}
}

// renewNext waits for the next shape; false = there will be none.
func (a *asker) renewNext(ctx context.Context) bool {
	s, over := a.queue.Get()
	if over {
		return false
	}
	defer a.queue.Done(s)
	if ctx.Err() != nil {
		return true
	}
	p, newer := a.wanted(s)
	if p != nil {
		a.ask(ctx, p, func(h *held) bool { return h.newer(newer) })
	}
	a.renewed(s, newer)
	return true
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
