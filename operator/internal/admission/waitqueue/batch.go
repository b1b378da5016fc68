package waitqueue

import (
	"maps"
	"slices"
	"time"
)

// maxDueLines is the number of lines of one namespace that are due at a gate at the same time.
// Few teams have more shapes of jobs waiting at once.
const maxDueLines = 16

// request notes that a line needs results of this time. If it is due, they are queried now. The
// other lines become due as soon as their namespace has a place: see admit.
func (q *Queue) request(l *line, from time.Time) {
	if l.isDue() {
		l.markDue(from)
		q.refresh(l.key.QueryKey, from)
		return
	}
	if !l.isRequested() {
		l.requestedSince = from
	}
	l.requestedFrom = from
}

// admit makes requested lines due, up to maxDueLines of each namespace. The first ones are
// those that have waited since an earlier wake-up, and among them those that rank first.
func (q *Queue) admit(g *gateQueue) {
	requested := map[string][]*line{}
	for _, l := range g.lines {
		if l.isRequested() {
			requested[l.key.Namespace] = append(requested[l.key.Namespace], l)
		}
	}
	if len(requested) == 0 {
		return
	}
	due := map[string]int{}
	for _, l := range g.lines {
		if l.isDue() {
			due[l.key.Namespace]++
		}
	}
	g.batches++
	now := q.now()
	for _, namespace := range slices.Sorted(maps.Keys(requested)) {
		lines := requested[namespace]
		for range min(len(lines), maxDueLines-due[namespace]) {
			first := slices.MinFunc(lines, func(a, b *line) int { return a.compareRequest(b, now) })
			lines = slices.DeleteFunc(lines, func(l *line) bool { return l == first })
			q.makeDue(first, g.batches)
		}
	}
}

func (l *line) compareRequest(other *line, now time.Time) int {
	if c := l.requestedSince.Compare(other.requestedSince); c != 0 {
		return c
	}
	if l.first(now).Rank.Before(other.first(now).Rank, l.aging, now) {
		return -1
	}
	return 1
}

func (q *Queue) makeDue(l *line, batch int) {
	l.batch = batch
	l.markDue(l.requestedFrom)
	q.refresh(l.key.QueryKey, l.requestedFrom)
	l.requestedSince, l.requestedFrom = time.Time{}, time.Time{}
}

// mayDelay reports whether a line may wait for the results of other. Other was not decided in the wake-up for which
// the line is due: if the source is slower than wake-ups follow each other, other is always due for a later one. A
// namespace with more than maxDueLines lines delays a line by one batch, not by all of its batches.
func (g *gateQueue) mayDelay(other, l *line) bool {
	if !other.servedFrom.Before(l.wakeFrom) {
		return false
	}
	return other.batch <= l.batch || g.lineCounts[other.key.Namespace] <= maxDueLines
}
