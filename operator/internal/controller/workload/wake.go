package workload

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// waiters are the workloads that wait at each gate. A waiting workload has no
// timer of its own: each gate has one round per period, and one at once when
// something changed. A round first renews the answers about each shape that waits,
// then wakes its workloads.
type waiters struct {
	board *gate.Board
	now   func() time.Time
	// renew the answers about a shape that are older than that; renewed follows.
	renew func(s shape, newer time.Time)

	mu     sync.Mutex
	add    func(types.NamespacedName)
	parked map[types.NamespacedName]*waiter
	lines  map[string]*line
	marked map[string]bool
	// settled is when the samples will show all that has changed.
	settled time.Time
}

// waiter is one workload that waits.
type waiter struct {
	shape shape
	since time.Time
	// due to be woken by answers about its shape that are newer than first, until they
	// are newer than due; zero = not.
	first, due time.Time
}

// line of workloads at one gate.
type line struct {
	queue  gate.Queue
	shapes map[shape]map[types.NamespacedName]*waiter
	// last round.
	last time.Time
}

func newWaiters(board *gate.Board, now func() time.Time) *waiters {
	return &waiters{board: board, now: now, renew: func(shape, time.Time) {}, parked: map[types.NamespacedName]*waiter{},
		lines: map[string]*line{}, marked: map[string]bool{}}
}

// enqueue tells how to wake a workload.
func (w *waiters) enqueue(add func(types.NamespacedName)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add = add
}

// park a workload, which has waited since then, until its gate's next round. One
// that begins to wait may have been decided on answers of a while ago: it is woken
// once more, by newer ones.
func (w *waiters) park(s shape, key types.NamespacedName, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.parked[key]
	w.forget(key)
	l := w.lines[s.gate]
	if l == nil {
		l = &line{shapes: map[shape]map[types.NamespacedName]*waiter{}, last: w.now()}
		w.lines[s.gate] = l
	}
	if l.shapes[s] == nil {
		l.shapes[s] = map[types.NamespacedName]*waiter{}
	}
	waiter := &waiter{shape: s, since: since, due: w.now().Add(-freshFor)}
	waiter.first = waiter.due
	begins := old == nil || old.shape != s
	if !begins {
		waiter.first, waiter.due = old.first, old.due
	}
	w.parked[key], l.shapes[s][key] = waiter, waiter
	l.queue.Workloads++
	if l.queue.Since.IsZero() || since.Before(l.queue.Since) {
		l.queue.Since = since
	}
	w.board.SetWaiting(s.gate, l.queue)
	if begins {
		w.renew(s, waiter.due)
	}
}

// leave: the workload waits no longer.
func (w *waiters) leave(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(key)
}

func (w *waiters) forget(key types.NamespacedName) {
	waiter, ok := w.parked[key]
	if !ok {
		return
	}
	s := waiter.shape
	l := w.lines[s.gate]
	delete(w.parked, key)
	delete(l.shapes[s], key)
	if len(l.shapes[s]) == 0 {
		delete(l.shapes, s)
	}
	l.queue.Workloads--
	if l.queue.Workloads == 0 {
		l.queue.Since = time.Time{}
		delete(w.lines, s.gate)
	}
	w.board.SetWaiting(s.gate, l.queue)
}

// dirty asks for a round of a gate now; "" means every gate.
func (w *waiters) dirty(gateName string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gateName != "" {
		w.marked[gateName] = true
		return
	}
	for name := range w.lines {
		w.marked[name] = true
	}
}

// settling asks for rounds in quick succession for a while, in which the samples
// come to show what has just begun or ended.
func (w *waiters) settling(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.now().Add(d); at.After(w.settled) {
		w.settled = at
	}
}

// Start wakes until the context ends. It runs on the leader.
func (w *waiters) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) { w.wake() }, wakeTick)
	return nil
}

// wake the workloads of every gate that is due.
func (w *waiters) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for name, l := range w.lines {
		l.queue.Since = l.oldest()
		w.board.SetWaiting(name, l.queue)
		if now.Sub(l.last) < w.gap(name, l) {
			continue
		}
		l.last = now
		delete(w.marked, name)
		for s, keys := range l.shapes {
			for _, waiter := range keys {
				waiter.due = now
				if waiter.first.IsZero() {
					waiter.first = now
				}
			}
			w.renew(s, now)
		}
	}
}

// gap between the last round of a gate and its next.
func (w *waiters) gap(name string, l *line) time.Duration {
	period := gate.DefaultPeriod
	if g, ok := w.board.Get(name); ok {
		period = gate.Seconds(g.Spec.PeriodSeconds, period)
	}
	switch {
	case w.marked[name]:
		return wakeGap
	case l.last.Before(w.settled):
		return min(period, settleGap)
	}
	return period
}

func (l *line) oldest() time.Time {
	var oldest time.Time
	for _, keys := range l.shapes {
		for _, waiter := range keys {
			if oldest.IsZero() || waiter.since.Before(oldest) {
				oldest = waiter.since
			}
		}
	}
	return oldest
}

// renewed: no answer about the shape is older than that any longer. Who waits for
// such answers is woken.
func (w *waiters) renewed(s shape, newer time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[s.gate]
	if l == nil || w.add == nil {
		return
	}
	for key, waiter := range l.shapes[s] {
		if waiter.due.IsZero() || newer.Before(waiter.first) {
			continue
		}
		if !waiter.due.After(newer) { // else that round is still owed
			waiter.first, waiter.due = time.Time{}, time.Time{}
		}
		w.add(key)
	}
}
