package dispatch

import (
	"slices"
	"sync"
	"time"
)

// lagWindow is the time for which a measured admission says something about MultiKueue.
const lagWindow = time.Minute

// Lag estimates how long MultiKueue takes to act on a nomination. The hub does not show when
// MultiKueue creates a copy, but it shows when a cluster admits one. While MultiKueue has a
// backlog, each admission takes at least as long as the backlog, so that the fastest recent
// admission bounds it. A slow admission alone says nothing: the cluster may have been full.
//
// The zero value is ready to use. It is safe for concurrent use.
type Lag struct {
	mu     sync.Mutex
	recent []admission
}

type admission struct {
	at   time.Time
	took time.Duration
}

// Observe records an admission of a workload that was nominated and admitted at these times.
func (l *Lag) Observe(nominated, admitted time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent = append(l.at(admitted), admission{at: admitted, took: max(0, admitted.Sub(nominated))})
}

// At returns the estimate: the shortest time from nomination to admission within the last
// minute, or 0 if no cluster has admitted a workload in that time.
func (l *Lag) At(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	recent := l.at(now)
	if len(recent) == 0 {
		return 0
	}
	return slices.MinFunc(recent, func(a, b admission) int { return int(a.took - b.took) }).took
}

// at returns the admissions within the window that ends at a time.
func (l *Lag) at(now time.Time) []admission {
	return slices.DeleteFunc(slices.Clone(l.recent), func(a admission) bool { return now.Sub(a.at) > lagWindow })
}
