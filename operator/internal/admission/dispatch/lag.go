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
	l.admissions.add(nominated, admitted)
}

// At returns the estimate: the shortest time from nomination to admission within the last
// minute, or 0 if no cluster has admitted a workload in that time.
func (l *Lag) At(now time.Time) time.Duration {
	if took := l.admissions.at(now); len(took) > 0 {
		return slices.Min(took)
	}
	return 0
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
	l.evictions.add(began, complete)
}

// At returns the estimate: the longest eviction that was complete within the last minute, or 0 if
// there is none.
func (l *EvictionLag) At(now time.Time) time.Duration {
	if took := l.evictions.at(now); len(took) > 0 {
		return slices.Max(took)
	}
	return 0
}

// recentTimes are how long events took that ended within the last minute.
type recentTimes struct {
	mu     sync.Mutex
	events []timedEvent
}

type timedEvent struct {
	end  time.Time
	took time.Duration
}

func (r *recentTimes) add(began, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(end)
	r.events = append(r.events, timedEvent{end: end, took: max(0, end.Sub(began))})
}

func (r *recentTimes) at(now time.Time) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	took := make([]time.Duration, 0, len(r.events))
	for _, e := range r.events {
		took = append(took, e.took)
	}
	return took
}

func (r *recentTimes) expire(now time.Time) {
	r.events = slices.DeleteFunc(r.events, func(e timedEvent) bool { return now.Sub(e.end) > lagWindow })
}
