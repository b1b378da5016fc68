package ledger

import (
	"slices"
	"time"
)

// Expire drops the entries that are over, and credits that samples show or that are older than TTL. An entry is
// over when samples show its devices and its quota, or when it is older than TTL, unless it is of a component that
// waits while its cluster runs the primary one. times are, per cluster, those of the oldest samples that a decision
// may still use. Expire returns the number of entries that reserve no devices any more.
func (l *Ledger) Expire(times map[string]SampleTimes, now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := 0
	for e := range l.all() {
		reservesDevices, reservesQuota := e.reserves(times[e.Cluster], l.Settle)
		if now.Sub(e.DebitedAt) > l.TTL && !l.followsRunning(e) {
			reservesDevices, reservesQuota = false, false
		}
		if !reservesDevices && !e.QuotaOnly {
			dropped++
		}
		switch {
		case !reservesDevices && !reservesQuota:
			l.remove(e)
		case !reservesDevices && !e.QuotaOnly:
			shown := *e
			shown.QuotaOnly = true
			l.put(shown)
		}
	}
	l.credits = slices.DeleteFunc(l.credits, func(c Credit) bool {
		isOver := now.Sub(c.FinishedAt) > l.TTL || times[c.Cluster].Devices.After(c.FinishedAt.Add(l.Settle))
		if isOver {
			l.invalidate(c.Cluster)
		}
		return isOver
	})
	return dropped
}

// followsRunning reports whether the entry is of a component that waits while its cluster runs the
// primary component of its job. The entry ends with that component or with the workload's attempt.
func (l *Ledger) followsRunning(e *Entry) bool {
	primary, isRunning := l.running[e.DecidedBy]
	return isRunning && primary.Cluster == e.Cluster && e.EndedAt.IsZero()
}
