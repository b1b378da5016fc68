package dispatch

import (
	"slices"
	"sync"
	"time"
)

// lagWindow is the time for which a measured admission or eviction says something about MultiKueue.
const lagWindow = time.Minute

// Lag estimates how long MultiKueue takes to act on a nomination. The hub does not show when
// MultiKueue creates a copy, but it shows when a cluster admits one. While MultiKueue has a
// backlog, each admission takes at least as long as the backlog, so that the fastest recent
// admission bounds it. A slow admission alone says nothing: the cluster may have been full.
//
// The zero value is ready to use. It is safe for concurrent use.
type Lag struct {
	admissions recentTimes
}

// Observe records an admission of a workload that was nominated and admitted at these times.
func (l *Lag) Observe(nominated, admitted time.Time) {
	l.admissions.add(nominated, admitted, isShorter)
}

// At returns the estimate: the shortest time from nomination to admission within the last
// minute, or 0 if no cluster has admitted a workload in that time.
func (l *Lag) At(now time.Time) time.Duration {
	return l.admissions.first(now, isShorter)
}

// EvictionLag estimates how long MultiKueue takes to complete an eviction. When many workloads are
// evicted at once, each one takes longer than the one before, so that the slowest recent eviction
// bounds those that follow.
//
// The zero value is ready to use. It is safe for concurrent use.
type EvictionLag struct {
	evictions recentTimes
}

// Observe records an eviction that began and was complete at these times. Evictions that wait for
// something else than MultiKueue do not count.
func (l *EvictionLag) Observe(began, complete time.Time) {
	l.evictions.add(began, complete, isLonger)
}

// At returns the estimate: the longest eviction that was complete within the last minute, or 0 if
// there is none.
func (l *EvictionLag) At(now time.Time) time.Duration {
	return l.evictions.first(now, isLonger)
}

func isShorter(a, b time.Duration) bool { return a < b }

func isLonger(a, b time.Duration) bool { return a > b }

// recentTimes are how long events took that ended within the last minute. Each workload asks for the first of them in an
// order, so that only those are kept that come before all later ones: a few of hundreds.
type recentTimes struct {
	mu     sync.Mutex
	events []timedEvent
}

type timedEvent struct {
	end  time.Time
	took time.Duration
}

func (r *recentTimes) add(began, end time.Time, isBefore func(a, b time.Duration) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	added := timedEvent{end: end, took: max(0, end.Sub(began))}
	if slices.ContainsFunc(r.events, func(e timedEvent) bool { return e.end.After(end) && !isBefore(added.took, e.took) }) {
		return
	}
	r.events = slices.DeleteFunc(r.events, func(e timedEvent) bool {
		return end.Sub(e.end) > lagWindow || !e.end.After(end) && !isBefore(e.took, added.took)
	})
	r.events = append(r.events, added)
}

// first is the first time in the order; 0 = no event ended within the last minute.
func (r *recentTimes) first(now time.Time, isBefore func(a, b time.Duration) bool) (took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isFound := false
	for _, e := range r.events {
		if now.Sub(e.end) <= lagWindow && (!isFound || isBefore(e.took, took)) {
			took, isFound = e.took, true
		}
	}
	return took
}
