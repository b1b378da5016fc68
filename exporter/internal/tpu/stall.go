package tpu

import "time"

// pulse is what tells whether a chip executes what is queued on it.
type pulse struct {
	at     time.Time
	told   bool   // it is known whether anything is queued
	queued bool   // something is
	mark   uint64 // of its cores' program counters; 0 where they are not told
	idle   *float64
	uptime *float64
}

// watch remembers since when a chip has not moved.
type watch struct {
	last  pulse
	since time.Time // of the last sign that it moved
}

// see a pulse and tell for how many seconds programs have been queued on the chip
// while nothing shows that it executes any; ok is false where that can't be told.
func (w *watch) see(p pulse) (seconds float64, ok bool) {
	last := w.last
	w.last = p
	if !p.told {
		return 0, false
	}
	if !p.queued || !last.queued {
		w.since = p.at
		return 0, !p.queued || p.mark != 0 || p.idle != nil
	}
	moves, ok := p.moves(last)
	if moves || !ok {
		w.since = p.at
	}
	return p.at.Sub(w.since).Seconds(), ok
}

// moves compares with the last pulse: program counters decide, else how long the
// cores have been idle. A runtime whose own clock stands still does not move.
func (p pulse) moves(last pulse) (moves, known bool) {
	elapsed := p.at.Sub(last.at).Seconds()
	switch {
	case p.uptime != nil && last.uptime != nil && *p.uptime < *last.uptime: // it has restarted
		return true, true
	case p.uptime != nil && last.uptime != nil && *p.uptime == *last.uptime && elapsed > 2:
		return false, true
	case p.mark != 0:
		return p.mark != last.mark, true
	case p.idle != nil:
		return *p.idle < elapsed, true
	}
	return false, false
}
