package waitqueue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Queue holds the waiting workloads of every gate. It is safe for concurrent use.
type Queue struct {
	registry *gatestate.Registry
	now      func() time.Time
	refresh  func(key gatestate.QueryKey, newerThan time.Time)

	mu        sync.Mutex
	enqueue   func(types.NamespacedName)
	workloads map[types.NamespacedName]*Entry
	gates     map[string]*gateQueue
	// dirty are, by gate, the devices that changed. Their lines get a wake-up as soon as
	// timing.MinWakeUpGap permits.
	dirty map[string]devices
	// settling are, by gate, the devices for which wake-ups follow each other quickly.
	settling map[string]settling
}

// settling are devices that the samples are about to show as taken or free.
type settling struct {
	devices devices
	until   time.Time
}

// gateQueue holds the waiting workloads of one gate.
type gateQueue struct {
	summary gatestate.WaitSummary
	lines   map[lineKey]*line
	// lineCounts is the number of lines of each namespace.
	lineCounts map[string]int
	// lastWakeUp of all lines, and last wake-up of any.
	lastWakeUp, lastEarly time.Time
	// turn is the workload that was woken and is not decided yet, or noTurn.
	turn types.NamespacedName
	// batches is the number of batches so far.
	batches int
}

// New returns an empty queue. It writes the number of waiting workloads to the registry.
// The queue calls refresh to request results of a key newer than newerThan; refresh must not
// block. Call Refreshed once these results exist.
func New(gates *gatestate.Registry, now func() time.Time, refresh func(key gatestate.QueryKey, newerThan time.Time)) *Queue {
	return &Queue{
		registry: gates, now: now, refresh: refresh,
		workloads: map[types.NamespacedName]*Entry{}, gates: map[string]*gateQueue{}, dirty: map[string]devices{},
		settling: map[string]settling{},
	}
}

// SetEnqueuer sets the function that wakes a workload. Until then no workload is woken.
func (q *Queue) SetEnqueuer(enqueue func(types.NamespacedName)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enqueue = enqueue
}

// Add adds or updates a workload. A workload that is new, or whose line has changed, is decided
// once more with fresh results: at once, or in an early wake-up if workloads rank before it. So
// is a workload that has room and waits for its turn.
func (q *Queue) Add(e Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.workloads[e.Workload]
	if old != nil && old.line() == e.line() && old.Rank == e.Rank && old.Aging == e.Aging {
		if e.HasRoom {
			q.markDirty(e.Key.Gate, e.PodSets)
		}
		return
	}
	left := q.remove(e.Workload)
	first := q.preceding(e)
	l := q.insert(&e)
	defer q.wakeNext(q.gates[e.Key.Gate])
	if left != nil {
		defer q.wakeNext(left)
	}
	switch {
	case first != nil || e.HasRoom:
		q.markDirty(e.Key.Gate, e.PodSets)
	case old == nil || old.line() != e.line():
		q.request(l, q.now().Add(-timing.FreshResult))
		q.admit(q.gates[e.Key.Gate])
	}
}

func (q *Queue) insert(e *Entry) *line {
	g := q.gates[e.Key.Gate]
	if g == nil {
		g = &gateQueue{lines: map[lineKey]*line{}, lineCounts: map[string]int{}, lastWakeUp: q.now(), lastEarly: q.now()}
		q.gates[e.Key.Gate] = g
	}
	l := g.lines[e.line()]
	if l == nil {
		l = &line{key: e.line()}
		g.lines[l.key] = l
		g.lineCounts[e.Key.Namespace]++
	}
	q.workloads[e.Workload] = e
	l.insert(e)
	q.noteHead(l)
	g.count(e, 1)
	q.registry.SetWaiting(e.Key.Gate, g.summary)
	return l
}

// count adds a workload to the summary, or removes it.
func (g *gateQueue) count(e *Entry, n int32) {
	if e.Parked {
		g.summary.Parked += n
		return
	}
	g.summary.Workloads += n
	switch {
	case g.summary.Workloads == 0:
		g.summary.Since = time.Time{}
	case n > 0 && (g.summary.Since.IsZero() || e.Rank.Since.Before(g.summary.Since)):
		g.summary.Since = e.Rank.Since
	}
}

// Devices returns the number of devices that the waiting workloads of each gate request.
func (q *Queue) Devices() map[string]map[gatestate.DeviceKind]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	sums := map[string]map[gatestate.DeviceKind]int64{}
	for _, e := range q.workloads {
		if e.Parked {
			continue
		}
		of := sums[e.Key.Gate]
		if of == nil {
			of = map[gatestate.DeviceKind]int64{}
			sums[e.Key.Gate] = of
		}
		for _, p := range e.PodSets {
			of[gatestate.DeviceKind{Resource: p.Resource, Model: p.Model}] += p.Devices()
		}
	}
	return sums
}

// Remove removes a workload that no longer waits. If it had the turn, or others waited for the
// results of its line, the next one is woken.
func (q *Queue) Remove(workload types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if left := q.remove(workload); left != nil {
		q.wakeNext(left)
	}
}

// remove returns the gate that the workload waited for, or nil. The caller wakes its next workload.
// remove does not correct the summary's Since. StartWakeUps does at its next tick.
func (q *Queue) remove(workload types.NamespacedName) *gateQueue {
	e, ok := q.workloads[workload]
	if !ok {
		return nil
	}
	g := q.gates[e.Key.Gate]
	l := g.lines[e.line()]
	delete(q.workloads, workload)
	l.remove(e)
	if len(l.byPriority) == 0 {
		delete(g.lines, l.key)
		if g.lineCounts[e.Key.Namespace]--; g.lineCounts[e.Key.Namespace] == 0 {
			delete(g.lineCounts, e.Key.Namespace)
		}
	}
	g.count(e, -1)
	if len(g.lines) == 0 {
		delete(q.gates, e.Key.Gate)
	}
	q.registry.SetWaiting(e.Key.Gate, g.summary)
	q.admit(g)
	if g.turn == workload {
		g.turn = noTurn
	}
	return g
}

// MarkDirty requests an early wake-up of gates because something changed that concerns all
// workloads.
func (q *Queue) MarkDirty(gateNames ...string) { q.MarkFreed(nil, gateNames...) }

// MarkFreed requests an early wake-up for the workloads that might use devices which became free.
// nil stands for all devices.
func (q *Queue) MarkFreed(freed []shape.PodSet, gateNames ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range gateNames {
		q.markDirty(name, freed)
	}
}

func (q *Queue) markDirty(gateName string, changed []shape.PodSet) {
	q.dirty[gateName] = q.dirty[gateName].with(changed)
}

// ExpectChanges requests wake-ups in quick succession for a duration, within which the samples
// will show workloads that have just started or ended. They concern the workloads that might use
// the same devices; nil stands for all.
func (q *Queue) ExpectChanges(d time.Duration, changing []shape.PodSet, gateNames ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	end := q.now().Add(d)
	for _, name := range gateNames {
		s := q.settling[name]
		if end.After(s.until) {
			s.until = end
		}
		s.devices = s.devices.with(changing)
		q.settling[name] = s
	}
}

// Start runs wake-ups until ctx ends. It implements manager.Runnable and runs on the leader
// only.
func (q *Queue) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) { q.StartWakeUps() }, timing.WakeTick)
	return nil
}

// StartWakeUps starts a wake-up of each due gate: its lines become due and their results are
// refreshed, in batches if a namespace has many. An early wake-up is one of the lines that a change
// concerns. StartWakeUps also updates the wait summaries of all gates.
func (q *Queue) StartWakeUps() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	maps.DeleteFunc(q.settling, func(name string, s settling) bool {
		return s.until.Before(now) && (q.gates[name] == nil || !q.gates[name].lastEarly.Before(s.until))
	})
	maps.DeleteFunc(q.dirty, func(name string, _ devices) bool { return q.gates[name] == nil })
	for _, name := range slices.Sorted(maps.Keys(q.gates)) {
		g := q.gates[name]
		g.summary.Since = g.oldestWait()
		q.registry.SetWaiting(name, g.summary)
		for _, l := range g.byRank(now) { // aging changes who is first
			q.noteHead(l)
		}
		if due := q.dueDevices(name, g, now); !due.isEmpty() {
			delete(q.dirty, name)
			q.startWakeUp(g, due, now)
		}
		q.wakeNext(g) // ranks change with time
	}
}

// startWakeUp starts a wake-up of the lines that a change concerns.
func (q *Queue) startWakeUp(g *gateQueue, due devices, now time.Time) {
	g.lastEarly = now
	isFull := true
	for _, l := range g.byRank(now) {
		if !due.concern(l) {
			isFull = false
			continue
		}
		q.request(l, now)
	}
	q.admit(g)
	if isFull {
		g.lastWakeUp = now
	}
}

// byRank are the lines in the order of their first workloads, so that the results that decide first are
// queried first.
func (g *gateQueue) byRank(now time.Time) []*line {
	return slices.SortedFunc(maps.Values(g.lines), func(a, b *line) int {
		if a.first(now).Rank.Before(b.first(now).Rank, a.aging, now) {
			return -1
		}
		return 1
	})
}

// dueDevices returns the devices whose lines get a wake-up now.
func (q *Queue) dueDevices(gateName string, g *gateQueue, now time.Time) devices {
	period := timing.DefaultPeriod
	if known, ok := q.registry.Get(gateName); ok {
		period = timing.Seconds(known.Spec.PeriodSeconds, period)
	}
	if now.Sub(g.lastWakeUp) >= period {
		return devices{all: true}
	}
	var due devices
	gap := now.Sub(g.lastEarly)
	if changed, isDirty := q.dirty[gateName]; isDirty && gap >= timing.MinWakeUpGap {
		due = due.and(changed)
	}
	if s, ok := q.settling[gateName]; ok && gap >= timing.SettlingWakeUpGap && g.lastEarly.Before(s.until) {
		due = due.and(s.devices)
	}
	return due
}

func (g *gateQueue) oldestWait() time.Time {
	var oldest time.Time
	for _, l := range g.lines {
		if l.key.parked {
			continue
		}
		if since := l.bySince[0].Rank.Since; oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	return oldest
}

// Refreshed wakes the next workload of the key's gate: no result of the key is older than
// newerThan.
func (q *Queue) Refreshed(key gatestate.QueryKey, newerThan time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.gates[key.Gate]
	if g == nil {
		return
	}
	for _, l := range g.lines {
		if l.key.QueryKey == key && l.resultsFrom.Before(newerThan) {
			l.resultsFrom = newerThan
		}
	}
	q.wakeNext(g)
}
