package workload

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

const (
	wakeTick = 250 * time.Millisecond
	// wakeGap is the least time between two rounds of one gate.
	wakeGap = time.Second
)

// waiters are the workloads that wait at each gate. A waiting workload has no
// timer of its own: each gate has one round per period, and one at once when
// something changed.
type waiters struct {
	board *gate.Board
	now   func() time.Time
	// before a round of a gate.
	before func(gate string)

	mu     sync.Mutex
	add    func(types.NamespacedName)
	gateOf map[types.NamespacedName]string
	byGate map[string]map[types.NamespacedName]time.Time
	marked map[string]bool
	last   map[string]time.Time
	// later is when one more round of every gate is due; zero = none.
	later time.Time
}

func newWaiters(board *gate.Board, now func() time.Time) *waiters {
	return &waiters{board: board, now: now, before: func(string) {}, gateOf: map[types.NamespacedName]string{},
		byGate: map[string]map[types.NamespacedName]time.Time{}, marked: map[string]bool{}, last: map[string]time.Time{}}
}

// enqueue tells how to wake a workload.
func (w *waiters) enqueue(add func(types.NamespacedName)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add = add
}

// park a workload, which has waited since then, until its gate's next round.
func (w *waiters) park(gateName string, key types.NamespacedName, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(key)
	w.gateOf[key] = gateName
	if w.byGate[gateName] == nil {
		w.byGate[gateName] = map[types.NamespacedName]time.Time{}
		w.last[gateName] = w.now()
	}
	w.byGate[gateName][key] = since
	w.board.SetWaiting(gateName, queue(w.byGate[gateName]))
}

func queue(keys map[types.NamespacedName]time.Time) gate.Queue {
	q := gate.Queue{Workloads: int32(len(keys))}
	for _, since := range keys {
		if q.Since.IsZero() || since.Before(q.Since) {
			q.Since = since
		}
	}
	return q
}

// leave: the workload waits no longer.
func (w *waiters) leave(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(key)
}

func (w *waiters) forget(key types.NamespacedName) {
	if name, ok := w.gateOf[key]; ok {
		delete(w.gateOf, key)
		delete(w.byGate[name], key)
		if len(w.byGate[name]) == 0 {
			delete(w.byGate, name)
			w.board.SetWaiting(name, gate.Queue{})
		}
	}
}

// dirty asks for a round of a gate now; "" means every gate.
func (w *waiters) dirty(gateName string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gateName != "" {
		w.marked[gateName] = true
		return
	}
	for name := range w.byGate {
		w.marked[name] = true
	}
}

// dirtyAfter asks for one more round of every gate after a while, when the
// samples will show what has just ended.
func (w *waiters) dirtyAfter(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.now().Add(d); at.After(w.later) {
		w.later = at
	}
}

// Start wakes until the context ends. It runs on the leader.
func (w *waiters) Start(ctx context.Context) error {
	ticker := time.NewTicker(wakeTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.wake()
		}
	}
}

// wake the workloads of every gate that is due.
func (w *waiters) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if !w.later.IsZero() && !now.Before(w.later) {
		w.later = time.Time{}
		for name := range w.byGate {
			w.marked[name] = true
		}
	}
	for name, keys := range w.byGate {
		w.board.SetWaiting(name, queue(keys))
		period := gate.DefaultPeriod
		if g, ok := w.board.Get(name); ok {
			period = gate.Seconds(g.Spec.PeriodSeconds, period)
		}
		since := now.Sub(w.last[name])
		if w.add == nil || since < period && (!w.marked[name] || since < wakeGap) {
			continue
		}
		w.last[name] = now
		delete(w.marked, name)
		w.before(name)
		for key := range keys {
			w.add(key)
		}
	}
}
