package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// copyStays is how long a workload may be without quota, or a cluster connected, before
// Kueue has surely looked at it and removed its copies.
const copyStays = 10 * time.Second

// waitsForCopy is how long a workload waits at most for a cluster out of reach.
const waitsForCopy = time.Minute

// left are the clusters where a copy of the last attempt may be, unknown to the hub,
// because the quota was reserved anew before Kueue could remove it. One that runs is
// adopted if it is nominated again; otherwise Kueue can neither record nor remove it.
func (r *Reconciler) left(s *subject) (clusters []string, lost time.Time) {
	clusters, lost = r.tracks.left(s.wl.UID)
	reserved, _ := reservedAt(s.wl)
	return slices.DeleteFunc(clusters, func(c string) bool {
		return s.connected(c) && reserved.Sub(lost) > copyStays && reserved.Sub(s.since[c]) > copyStays
	}), lost
}

// putOff sending a workload elsewhere for so long after it lost its quota while a
// cluster where a copy may be left is in the configuration and out of reach: once it can, Kueue takes the copy
// that was admitted first for the one that counts, and removes the other.
func (r *Reconciler) putOff(s *subject, d gate.Decision, after time.Duration) (gate.Decision, time.Duration) {
	clusters, lost := r.left(s)
	clusters = slices.DeleteFunc(clusters, func(c string) bool { return s.unusable[c] == "" })
	until := lost.Add(min(after, waitsForCopy))
	wait := until.Sub(r.now())
	if len(clusters) == 0 || wait <= 0 {
		return d, 0
	}
	return gate.Decision{State: gate.Pending, Reason: gate.ReasonCopyLeft, Verdicts: d.Verdicts, Message: gate.Truncate(fmt.Sprintf(
		"waits until %s for %s, where a copy of its last attempt may be left and which Kueue cannot reach",
		until.UTC().Format(time.TimeOnly+" UTC"), strings.Join(clusters, ", ")))}, wait
}
