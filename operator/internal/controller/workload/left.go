package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// left are the clusters where a copy of the last attempt may be, unknown to the hub,
// because the quota was reserved anew before Kueue could remove it. One that runs is
// adopted if it is nominated again; otherwise Kueue can neither record nor remove it.
// One that Kueue had recorded it removes, unless it can't reach it.
func (r *Reconciler) left(s *subject) []string {
	clusters, recorded, lost := r.tracks.left(s.wl.UID)
	if s.mk == "" {
		return nil
	}
	reserved, _ := reservedAt(s.wl)
	return slices.DeleteFunc(clusters, func(c string) bool {
		return s.connected(c) && reserved.Sub(s.since[c]) > timing.CopyCleanup && (recorded || reserved.Sub(lost) > timing.CopyCleanup)
	})
}

// putOff sending a workload elsewhere for so long after it lost its quota while a
// cluster where a copy may be left is in the configuration and out of reach, or may be:
// once it can be reached, Kueue takes the copy that was admitted first for the one that
// counts, and removes the other.
func (r *Reconciler) putOff(s *subject, d gate.Decision, after time.Duration) (gate.Decision, time.Duration) {
	ran, recorded, lost := r.tracks.left(s.wl.UID)
	away := slices.DeleteFunc(r.left(s), func(c string) bool { return s.unusable[c] == "" })
	until, why := lost.Add(min(after, timing.MaxCopyWait)), "which Kueue cannot reach"
	if len(away) == 0 && recorded && !slices.Contains(ran, d.Order[0]) {
		away, until, why = ran, lost.Add(timing.OutageDetection), "from where Kueue may not have removed it yet"
	}
	wait := until.Sub(r.now())
	if len(away) == 0 || wait <= 0 {
		return d, 0
	}
	return gate.Decision{State: gate.Pending, Reason: gate.ReasonOrphanedCopy, Verdicts: d.Verdicts, Message: gate.Truncate(fmt.Sprintf(
		"waits until %s for its last attempt on %s, %s", until.UTC().Format(time.TimeOnly+" UTC"), strings.Join(away, ", "), why))}, wait
}
