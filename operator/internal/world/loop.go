package world

import (
	"sync"
	"time"
)

// Loop runs the events of a world in the order of their times; events of equal time run in the
// order in which they were scheduled. After is safe for concurrent use, the other methods are for
// the one goroutine that drives the world.
type Loop struct {
	now func() time.Time

	mu     sync.Mutex
	events eventHeap
	count  uint64
	// wake has an element if an event was scheduled before all others.
	wake chan struct{}
}

// NewLoop returns an empty loop. now is the clock: the caller advances it to Next before RunNext.
func NewLoop(now func() time.Time) *Loop {
	return &Loop{now: now, wake: make(chan struct{}, 1)}
}

type event struct {
	at time.Time
	// nanoseconds are those of at, and order is the number of events scheduled before.
	nanoseconds int64
	order       uint64
	do          func()
}

// eventHeap has the earliest event first.
type eventHeap []event

func (h eventHeap) isBefore(i, j int) bool {
	a, b := &h[i], &h[j]
	return a.nanoseconds < b.nanoseconds || a.nanoseconds == b.nanoseconds && a.order < b.order
}

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	for i := len(*h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.isBefore(i, parent) {
			return
		}
		(*h)[i], (*h)[parent] = (*h)[parent], (*h)[i]
		i = parent
	}
}

func (h *eventHeap) pop() event {
	all := *h
	first, last := all[0], len(all)-1
	all[0], all[last] = all[last], event{}
	*h = all[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && h.isBefore(child+1, child) {
			child++
		}
		if !h.isBefore(child, i) {
			return first
		}
		(*h)[i], (*h)[child] = (*h)[child], (*h)[i]
		i = child
	}
}

// Now is the time in the world.
func (l *Loop) Now() time.Time { return l.now() }

// After schedules an event.
func (l *Loop) After(delay time.Duration, do func()) {
	at := l.now().Add(max(0, delay))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	isFirst := len(l.events) == 0 || at.Before(l.events[0].at)
	l.events.push(event{at, at.UnixNano(), l.count, do})
	if isFirst {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Wake receives when an event was scheduled that comes before the others.
func (l *Loop) Wake() <-chan struct{} { return l.wake }

// Next is the time of the next event; ok is false if there is none.
func (l *Loop) Next() (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.events) == 0 {
		return time.Time{}, false
	}
	return l.events[0].at, true
}

// RunNext runs the next event if its time has come, and reports whether it did.
func (l *Loop) RunNext() bool {
	l.mu.Lock()
	if len(l.events) == 0 || l.events[0].at.After(l.now()) {
		l.mu.Unlock()
		return false
	}
	next := l.events.pop()
	l.mu.Unlock()
	next.do()
	return true
}

// dice draws random numbers. Each subject has a sequence of its own, so that a change of the world
// in one place does not change the draws in all others.
type dice struct {
	seed  uint64
	mu    sync.Mutex
	drawn map[uint64]uint32 // by the hash of the subject
}

func newDice(seed uint64) *dice { return &dice{seed: seed, drawn: map[uint64]uint32{}} }

// fraction is the subject's next number from 0 to 1, without 1.
func (d *dice) fraction(subject string) float64 {
	hash := uint64(0xcbf29ce484222325) // FNV-1a
	for i := range len(subject) {
		hash = (hash ^ uint64(subject[i])) * 0x100000001b3
	}
	d.mu.Lock()
	d.drawn[hash]++
	n := uint64(d.drawn[hash])
	d.mu.Unlock()
	x := hash ^ d.seed*0x9e3779b97f4a7c15 ^ n*0xbf58476d1ce4e5b9
	// The finalizer of SplitMix64 spreads the bits.
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}

// between is the subject's next duration from low to high. No two events of the world should fall
// on the same nanosecond by chance of a round number.
func (d *dice) between(low, high time.Duration, subject string) time.Duration {
	return low + time.Duration(d.fraction(subject)*float64(high-low))
}

// chance is true with a probability.
func (d *dice) chance(p float64, subject string) bool { return p > 0 && d.fraction(subject) < p }
