package waitqueue

import (
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
// and might use the same devices, or the empty name. e need not be in the queue.
func (q *Queue) Preceding(e Entry) types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := q.preceding(e); first != nil {
		return first.Workload
	}
	return noTurn
}

func (q *Queue) preceding(e Entry) *Entry {
	g := q.gates[e.Key.Gate]
	if g == nil {
		return nil
	}
	now, first := q.now(), &e
	for _, l := range g.lines {
		if head := l.first(now); head.Workload != e.Workload && l.competesWith(e.PodSets) && head.Rank.Before(first.Rank, e.Aging, now) {
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

// wakeNext gives the turn to the first workload of the gate that may be decided: its line is
// due and has results, and no due line that competes with it and ranks before lacks results.
func (q *Queue) wakeNext(g *gateQueue) {
	if g.turn != noTurn || q.enqueue == nil {
		return
	}
	now := q.now()
	var next *Entry
	for _, l := range g.lines {
		if !l.isDue() || !l.hasResults() {
			continue
		}
		if head := l.first(now); (next == nil || head.Rank.Before(next.Rank, l.aging, now)) && !g.mustWait(l, head, now) {
			next = head
		}
	}
	if next != nil {
		g.turn = next.Workload
		q.enqueue(next.Workload)
	}
}

// mustWait reports whether the results of a due line that competes and ranks before are still
// being queried.
func (g *gateQueue) mustWait(l *line, head *Entry, now time.Time) bool {
	for _, other := range g.lines {
		if other != l && other.isDue() && !other.hasResults() && g.mayDelay(other, l) && other.competesWith(l.podSets) && other.first(now).Rank.Before(head.Rank, l.aging, now) {
			return true
		}
	}
	return false
}
