package waitqueue

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Queue holds the waiting workloads of every gate. It is safe for concurrent use.
type Queue struct {
	registry *registry.Registry
	now      func() time.Time
	refresh  func(key querycache.Key, newerThan time.Time)

	mu        sync.Mutex
	enqueue   func(types.NamespacedName)
	workloads map[types.NamespacedName]*waitingWorkload
	gates     map[string]*gateQueue
	// dirty gates get a round as soon as timing.MinRoundGap permits.
	dirty map[string]bool
	// settlingUntil is, by gate, the end of the time in which rounds follow each other quickly.
	settlingUntil map[string]time.Time
}

// waitingWorkload is one workload in the queue. The package documentation states the
// invariants of wakeFrom and wakeBefore.
type waitingWorkload struct {
	key                  querycache.Key
	since                time.Time
	wakeFrom, wakeBefore time.Time
}

func (w *waitingWorkload) isDue() bool { return !w.wakeBefore.IsZero() }

// markDue makes the workload due for results of this time.
func (w *waitingWorkload) markDue(now time.Time) {
	if !w.isDue() {
		w.wakeFrom = now
	}
	w.wakeBefore = now
}

func (w *waitingWorkload) clearDue() { w.wakeFrom, w.wakeBefore = time.Time{}, time.Time{} }

// gateQueue holds the waiting workloads of one gate.
type gateQueue struct {
	summary   registry.WaitSummary
	byKey     map[querycache.Key]map[types.NamespacedName]*waitingWorkload
	lastRound time.Time
}

// New returns an empty queue. It writes the number of waiting workloads to the registry.
// The queue calls refresh to request results of a key newer than newerThan; refresh must not
// block. Call Refreshed once these results exist.
func New(gates *registry.Registry, now func() time.Time, refresh func(key querycache.Key, newerThan time.Time)) *Queue {
	return &Queue{
		registry: gates, now: now, refresh: refresh,
		workloads: map[types.NamespacedName]*waitingWorkload{}, gates: map[string]*gateQueue{}, dirty: map[string]bool{},
		settlingUntil: map[string]time.Time{},
	}
}

// SetEnqueuer sets the function that wakes a workload. Until then no workload is woken.
func (q *Queue) SetEnqueuer(enqueue func(types.NamespacedName)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enqueue = enqueue
}

// Add adds or updates a workload that has waited since the given time. If the workload is
// new or its key has changed, fresh results of the key wake the workload once more.
func (q *Queue) Add(key querycache.Key, workload types.NamespacedName, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.workloads[workload]
	q.remove(workload)
	added := &waitingWorkload{key: key, since: since}
	isNew := old == nil || old.key != key
	if isNew {
		added.markDue(q.now().Add(-timing.FreshResult))
	} else {
		added.wakeFrom, added.wakeBefore = old.wakeFrom, old.wakeBefore
	}
	q.insert(workload, added)
	if isNew {
		q.refresh(key, added.wakeBefore)
	}
}

func (q *Queue) insert(workload types.NamespacedName, added *waitingWorkload) {
	g := q.gates[added.key.Gate]
	if g == nil {
		g = &gateQueue{byKey: map[querycache.Key]map[types.NamespacedName]*waitingWorkload{}, lastRound: q.now()}
		q.gates[added.key.Gate] = g
	}
	if g.byKey[added.key] == nil {
		g.byKey[added.key] = map[types.NamespacedName]*waitingWorkload{}
	}
	q.workloads[workload], g.byKey[added.key][workload] = added, added
	g.summary.Workloads++
	if g.summary.Since.IsZero() || added.since.Before(g.summary.Since) {
		g.summary.Since = added.since
	}
	q.registry.SetWaiting(added.key.Gate, g.summary)
}

// Remove removes a workload that no longer waits.
func (q *Queue) Remove(workload types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(workload)
}

// remove does not correct the summary's Since. The search for the oldest workload is too
// expensive for each removal, so StartRounds corrects Since at its next tick.
func (q *Queue) remove(workload types.NamespacedName) {
	old, ok := q.workloads[workload]
	if !ok {
		return
	}
	key := old.key
	g := q.gates[key.Gate]
	delete(q.workloads, workload)
	delete(g.byKey[key], workload)
	if len(g.byKey[key]) == 0 {
		delete(g.byKey, key)
	}
	g.summary.Workloads--
	if g.summary.Workloads == 0 {
		g.summary.Since = time.Time{}
		delete(q.gates, key.Gate)
	}
	q.registry.SetWaiting(key.Gate, g.summary)
}

// MarkDirty requests an early round of gates because something changed.
func (q *Queue) MarkDirty(gateNames ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range gateNames {
		q.dirty[name] = true
	}
}

// ExpectChanges requests rounds of gates in quick succession for a duration, within which the
// samples will show workloads that have just started or ended.
func (q *Queue) ExpectChanges(d time.Duration, gateNames ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	end := q.now().Add(d)
	for _, name := range gateNames {
		if end.After(q.settlingUntil[name]) {
			q.settlingUntil[name] = end
		}
	}
}

// Start runs rounds until ctx ends. It implements manager.Runnable and runs on the leader
// only.
func (q *Queue) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) { q.StartRounds() }, timing.WakeTick)
	return nil
}

// StartRounds starts a round of each due gate: the gate's workloads become due and their
// results are refreshed. It also updates the wait summaries of all gates.
func (q *Queue) StartRounds() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	maps.DeleteFunc(q.settlingUntil, func(name string, end time.Time) bool { return q.gates[name] == nil && end.Before(now) })
	for name, g := range q.gates {
		g.summary.Since = g.oldestWait()
		q.registry.SetWaiting(name, g.summary)
		if now.Sub(g.lastRound) < q.roundGap(name, g) {
			continue
		}
		g.lastRound = now
		delete(q.dirty, name)
		for key, workloads := range g.byKey {
			for _, w := range workloads {
				w.markDue(now)
			}
			q.refresh(key, now)
		}
	}
}

// roundGap returns the time between the last round of a gate and the next.
func (q *Queue) roundGap(gateName string, g *gateQueue) time.Duration {
	period := timing.DefaultPeriod
	if known, ok := q.registry.Get(gateName); ok {
		period = timing.Seconds(known.Spec.PeriodSeconds, period)
	}
	switch {
	case q.dirty[gateName]:
		return timing.MinRoundGap
	case g.lastRound.Before(q.settlingUntil[gateName]):
		return min(period, timing.SettlingRoundGap)
	}
	return period
}

func (g *gateQueue) oldestWait() time.Time {
	var oldest time.Time
	for _, workloads := range g.byKey {
		for _, w := range workloads {
			if oldest.IsZero() || w.since.Before(oldest) {
				oldest = w.since
			}
		}
	}
	return oldest
}

// Refreshed wakes the due workloads of a key: no result of the key is older than
// newerThan.
func (q *Queue) Refreshed(key querycache.Key, newerThan time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.gates[key.Gate]
	if g == nil || q.enqueue == nil {
		return
	}
	for workload, w := range g.byKey[key] {
		if !w.isDue() || newerThan.Before(w.wakeFrom) {
			continue
		}
		if !newerThan.Before(w.wakeBefore) {
			w.clearDue()
		} // otherwise a later round is still outstanding
		q.enqueue(workload)
	}
}
