package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// possibleCopies are the clusters that may hold a copy of the last attempt which the hub does
// not know, because the quota was reserved again before Kueue could remove the copy. A copy
// that runs is adopted if its cluster is nominated again; otherwise Kueue can neither record
// nor remove it. Kueue deletes a copy that it recorded, if it can reach the cluster.
//
// For a slice that replaces another one, Kueue removes no copy: they are the clusters of both slices,
// however long ago.
func (o *observation) possibleCopies() []string {
	if o.multiKueue == "" {
		return nil
	}
	if len(o.replacedSliceOn) > 0 {
		return slices.Clone(o.replacedSliceOn)
	}
	copies, reserved := o.history.copies, o.quotaReservedAt()
	return slices.DeleteFunc(slices.Clone(copies.clusters), func(c string) bool {
		hadTime := copies.recorded || reserved.Sub(copies.lostAt) > timing.CopyCleanup
		return o.workers.isConnected(c) && reserved.Sub(o.workers.connectedSince[c]) > timing.CopyCleanup && hadTime
	})
}

// waitForCopies keeps a workload from going elsewhere while a cluster that may hold a copy is
// unreachable, or may be.
//  1. The workload loses its quota while cluster1, which runs its copy, is unreachable.
//  2. The workload is sent to cluster2 and admitted there.
//  3. cluster1 comes back. Kueue prefers the copy that was admitted first and removes the other.
//
// The wait ends with the time after which a nomination is widened, a minute at most.
func (o *observation) waitForCopies(d gate.Decision) (gate.Decision, time.Duration) {
	copies := o.history.copies
	away := slices.DeleteFunc(o.possibleCopies(), func(c string) bool { return o.workers.disconnected[c] == "" })
	until, why := copies.lostAt.Add(min(o.widenAfter(), timing.MaxCopyWait)), "which Kueue can't reach"
	if len(away) == 0 && copies.recorded && !slices.Contains(copies.clusters, d.Order[0]) {
		away, until, why = copies.clusters, copies.lostAt.Add(timing.OutageDetection), "from which Kueue may not have removed it yet"
	}
	wait := until.Sub(o.now)
	if len(away) == 0 || wait <= 0 {
		return d, 0
	}
	return gate.Decision{State: gate.Pending, Reason: gate.ReasonOrphanedCopy, Verdicts: d.Verdicts, Message: gate.Truncate(fmt.Sprintf(
		"waits until %s for its last copy on %s, %s", until.UTC().Format(time.TimeOnly+" UTC"), strings.Join(away, ", "), why))}, wait
}
