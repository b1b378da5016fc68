package query

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// maxTurns is the number of endpoints of a source that are queried at once.
	maxTurns = 64
	// maxFailingTurns is the number of them whose last query failed: endpoints that do not
	// respond must not take the turns of the others.
	maxFailingTurns = maxTurns / 2
	// minTurn is the shortest time of a turn.
	minTurn = 250 * time.Millisecond
)

// turns distributes the time of queries over the endpoints of a source. An endpoint that
// does not respond takes its own share of the time, and not that of others: the time of a
// turn is at most what is left until the deadline, divided by the turns that still have to
// fit into it.
type turns struct {
	all, failing chan struct{}
	// waiting is the number of turns that all queries of the source still have to begin.
	waiting *atomic.Int64
}

func newTurns() turns {
	return turns{all: make(chan struct{}, maxTurns), failing: make(chan struct{}, maxFailingTurns), waiting: &atomic.Int64{}}
}

// announce adds n turns that will be taken.
func (t turns) announce(n int) { t.waiting.Add(int64(n)) }

// take waits for a turn and calls do with its deadline. isFailing means that the last query
// of the endpoint failed.
func (t turns) take(ctx context.Context, isFailing bool, do func(context.Context) error) error {
	width, slots := maxTurns, []chan struct{}{t.all}
	if isFailing {
		width, slots = maxFailingTurns, []chan struct{}{t.failing, t.all}
	}
	for _, slot := range slots {
		select {
		case slot <- struct{}{}:
			defer func() { <-slot }()
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			t.waiting.Add(-1)
			return notReached(ctx)
		}
	}
	waiting := t.waiting.Add(-1) + 1
	deadline, ok := ctx.Deadline()
	if !ok {
		return do(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, max(minTurn, time.Until(deadline)*time.Duration(width)/time.Duration(waiting)))
	defer cancel()
	return do(ctx)
}

// notReached is the error of an endpoint that had no turn before the deadline.
func notReached(ctx context.Context) *Error {
	if failure := transportError(ctx.Err()); failure.Reason == ReasonCanceled {
		return failure
	}
	return &Error{Reason: ReasonTimeout, Message: "the endpoint was not queried in time: it is among the first in the next round"}
}

// turn is the turn of an endpoint in one query.
type turn struct {
	endpoint  *endpoint
	isFailing bool
	last      time.Time
}

// order returns the endpoints in the order of their turns: first those that responded, and
// among them those that have waited longest.
func (c *Client) order(endpoints []*endpoint) []turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	order := make([]turn, 0, len(endpoints))
	for _, e := range endpoints {
		order = append(order, turn{e, e.failing, e.lastTurn})
	}
	slices.SortStableFunc(order, func(a, b turn) int {
		if a.isFailing != b.isFailing {
			if a.isFailing {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.last.UnixNano(), b.last.UnixNano())
	})
	return order
}

// takeTurn calls do and records the turn.
func (c *Client) takeTurn(ctx context.Context, e *endpoint, do func(context.Context, *endpoint) error) error {
	start := time.Now()
	err := do(ctx, e)
	c.mu.Lock()
	defer c.mu.Unlock()
	e.lastTurn = start
	switch ReasonOf(err) {
	case ReasonTimeout, ReasonUnreachable:
		e.failing = true
	default:
		e.failing = false
	}
	return err
}
