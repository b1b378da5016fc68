package waitqueue

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// waiters are the workloads that wait at each gate. A waiting workload has no
// timer of its own: each gate has one round per period, and one at once when
// something changed. A round first renews the answers about each shape that waits,
// then wakes its workloads.
type Queue struct {
	board *registry.Registry
	now   func() time.Time
	// renew the answers about a shape that are older than that; renewed follows.
	Refresh func(s querycache.Key, newer time.Time)

	mu        sync.Mutex
	enqueue   func(types.NamespacedName)
	workloads map[types.NamespacedName]*waitingWorkload
	gates     map[string]*gateQueue
	dirty     map[string]bool
	// settled is when the samples will show all that has changed.
	settlingUntil time.Time
}

// waiter is one workload that waits.
type waitingWorkload struct {
	shape querycache.Key
	since time.Time
	// due to be woken by answers about its shape that are newer than first, until they
	// are newer than due; zero = not.
	wakeFrom, wakeBefore time.Time
}

// line of workloads at one gate.
type gateQueue struct {
	summary registry.WaitSummary
	shapes  map[querycache.Key]map[types.NamespacedName]*waitingWorkload
	// last round.
	lastRound time.Time
}

func New(board *registry.Registry, now func() time.Time) *Queue {
	return &Queue{board: board, now: now, Refresh: func(querycache.Key, time.Time) {}, workloads: map[types.NamespacedName]*waitingWorkload{},
		gates: map[string]*gateQueue{}, dirty: map[string]bool{}}
}

// enqueue tells how to wake a workload.
func (w *Queue) SetEnqueuer(add func(types.NamespacedName)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enqueue = add
}

// park a workload, which has waited since then, until its gate's next round. One
// that begins to wait may have been decided on answers of a while ago: it is woken
// once more, by newer ones.
func (w *Queue) Add(s querycache.Key, key types.NamespacedName, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.workloads[key]
	w.remove(key)
	l := w.gates[s.Gate]
	if l == nil {
		l = &gateQueue{shapes: map[querycache.Key]map[types.NamespacedName]*waitingWorkload{}, lastRound: w.now()}
		w.gates[s.Gate] = l
	}
	if l.shapes[s] == nil {
		l.shapes[s] = map[types.NamespacedName]*waitingWorkload{}
	}
	waiter := &waitingWorkload{shape: s, since: since, wakeBefore: w.now().Add(-timing.FreshResult)}
	waiter.wakeFrom = waiter.wakeBefore
	begins := old == nil || old.shape != s
	if !begins {
		waiter.wakeFrom, waiter.wakeBefore = old.wakeFrom, old.wakeBefore
	}
	w.workloads[key], l.shapes[s][key] = waiter, waiter
	l.summary.Workloads++
	if l.summary.Since.IsZero() || since.Before(l.summary.Since) {
		l.summary.Since = since
	}
	w.board.SetWaiting(s.Gate, l.summary)
	if begins {
		w.Refresh(s, waiter.wakeBefore)
	}
}

// leave: the workload waits no longer.
func (w *Queue) Remove(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(key)
}

func (w *Queue) remove(key types.NamespacedName) {
	waiter, ok := w.workloads[key]
	if !ok {
		return
	}
	s := waiter.shape
	l := w.gates[s.Gate]
	delete(w.workloads, key)
	delete(l.shapes[s], key)
	if len(l.shapes[s]) == 0 {
		delete(l.shapes, s)
	}
	l.summary.Workloads--
	if l.summary.Workloads == 0 {
		l.summary.Since = time.Time{}
		delete(w.gates, s.Gate)
	}
	w.board.SetWaiting(s.Gate, l.summary)
}

// dirty asks for a round of a gate now; "" means every gate.
func (w *Queue) MarkDirty(gateName string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gateName != "" {
		w.dirty[gateName] = true
		return
	}
	for name := range w.gates {
		w.dirty[name] = true
	}
}

// settling asks for rounds in quick succession for a while, in which the samples
// come to show what has just begun or ended.
func (w *Queue) ExpectChanges(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.now().Add(d); at.After(w.settlingUntil) {
		w.settlingUntil = at
	}
}

// Start wakes until the context ends. It runs on the leader.
func (w *Queue) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) { w.StartRounds() }, timing.WakeTick)
	return nil
}

// wake the workloads of every gate that is due.
func (w *Queue) StartRounds() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for name, l := range w.gates {
		l.summary.Since = l.oldestWait()
		w.board.SetWaiting(name, l.summary)
		if now.Sub(l.lastRound) < w.roundGap(name, l) {
			continue
		}
		l.lastRound = now
		delete(w.dirty, name)
		for s, keys := range l.shapes {
			for _, waiter := range keys {
				waiter.wakeBefore = now
				if waiter.wakeFrom.IsZero() {
					waiter.wakeFrom = now
				}
			}
			w.Refresh(s, now)
		}
	}
}

// gap between the last round of a gate and its next.
func (w *Queue) roundGap(name string, l *gateQueue) time.Duration {
	period := timing.DefaultPeriod
	if g, ok := w.board.Get(name); ok {
		period = timing.Seconds(g.Spec.PeriodSeconds, period)
	}
	switch {
	case w.dirty[name]:
		return timing.MinRoundGap
	case l.lastRound.Before(w.settlingUntil):
		return min(period, timing.SettlingRoundGap)
	}
	return period
}

func (l *gateQueue) oldestWait() time.Time {
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
func (w *Queue) Refreshed(s querycache.Key, newer time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.gates[s.Gate]
	if l == nil || w.enqueue == nil {
		return
	}
	for key, waiter := range l.shapes[s] {
		if waiter.wakeBefore.IsZero() || newer.Before(waiter.wakeFrom) {
			continue
		}
		if !waiter.wakeBefore.After(newer) { // else that round is still owed
			waiter.wakeFrom, waiter.wakeBefore = time.Time{}, time.Time{}
		}
		w.enqueue(key)
	}
}
