package waitqueue

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// noTurn is the turn of a gate that waits for no decision.
var noTurn types.NamespacedName

// HasTurn reports whether the queue woke the workload because it is the next to be decided.
// Then call Decided after the decision, or EndTurn if there is none.
func (q *Queue) HasTurn(workload types.NamespacedName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.workloads[workload]
	return e != nil && q.gates[e.Key.Gate].turn == workload
}

// GateOf returns the gate at which a workload waits; empty = it does not wait.
func (q *Queue) GateOf(workload types.NamespacedName) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.workloads[workload]; e != nil {
		return e.Key.Gate
	}
	return ""
}

// Preceding returns the waiting workload that is decided first among those that rank before e
// and might use the same devices, or the empty name, and whether one of e's line is decided before e.
// e need not be in the queue.
func (q *Queue) Preceding(e Entry) (workload types.NamespacedName, follows bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.preceding(e)
	if first == nil {
		return noTurn, false
	}
	if l := q.gates[e.Key.Gate].lines[e.line()]; l != nil {
		now := q.now()
		head := l.firstExcept(e.Workload, now)
		follows = head != nil && head.Rank.Before(e.Rank, e.Aging, now)
	}
	return first.Workload, follows
}

func (q *Queue) preceding(e Entry) *Entry {
	g := q.gates[e.Key.Gate]
	if g == nil {
		return nil
	}
	now, first := q.now(), &e
	for _, l := range g.lines {
		if head := l.firstExcept(e.Workload, now); head != nil && l.competesWith(e.PodSets) && head.Rank.Before(first.Rank, e.Aging, now) {
			first = head
		}
	}
	if first == &e {
		return nil
	}
	return first
}

// Decided ends the turn of a workload that was decided, and wakes the next one. Call it after
// Add or Remove. outcome is what the decision has in common with those of the line's other
// workloads. If the outcome of the line's first workload changes, the others are woken to
// report it.
func (q *Queue) Decided(workload types.NamespacedName, outcome string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.workloads[workload]; e != nil {
		q.report(q.gates[e.Key.Gate].lines[e.line()], e, outcome)
	}
	q.endTurn(workload)
}

// EndTurn ends the turn of a workload that could not be decided.
func (q *Queue) EndTurn(workload types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endTurn(workload)
}

func (q *Queue) endTurn(workload types.NamespacedName) {
	e := q.workloads[workload]
	if e == nil || q.gates[e.Key.Gate].turn != workload {
		return
	}
	g := q.gates[e.Key.Gate]
	g.lines[e.line()].markServed()
	q.admit(g)
	g.turn = noTurn
	q.wakeNext(g)
}

// report wakes the other workloads of a line whose outcome changed.
func (q *Queue) report(l *line, decided *Entry, outcome string) {
	if outcome == l.outcome || l.first(q.now()) != decided {
		return
	}
	isFirst := l.outcome == ""
	l.outcome = outcome
	if isFirst || q.enqueue == nil {
		return
	}
	for _, e := range l.byPriority {
		if e != decided {
			q.enqueue(e.Workload)
		}
	}
}

// noteHead wakes the workload that is no longer the first of its line: its check says more than those of the others.
func (q *Queue) noteHead(l *line) {
	former, first := l.head, l.first(q.now()).Workload
	l.head = first
	if e := q.workloads[former]; former != first && e != nil && e.line() == l.key && q.enqueue != nil {
		q.enqueue(former)
	}
}

// wakeNext gives the turn to the next workload of the gate, if none has it.
func (q *Queue) wakeNext(g *gateQueue) {
	if g.turn != noTurn || q.enqueue == nil {
		return
	}
	if next := g.next(q.now()); next != nil {
		g.turn = next.Workload
		q.enqueue(next.Workload)
	}
}

// next returns the first workload that may be decided, or nil. A due line waits if its own results are
// still being queried, or if a competing line that ranks before waits for the results of the same wake-up.
func (g *gateQueue) next(now time.Time) *Entry {
	var due []*line
	for _, l := range g.lines {
		if l.isDue() {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *line) int {
		if a.first(now).Rank.Before(b.first(now).Rank, a.aging, now) {
			return -1
		}
		return 1
	})
	for i, l := range due {
		waits := slices.ContainsFunc(due[:i], func(before *line) bool { return g.mayDelay(before, l) && before.competesWith(l.podSets) })
		if l.hasResults() && !waits {
			return l.first(now)
		}
	}
	return nil
}
