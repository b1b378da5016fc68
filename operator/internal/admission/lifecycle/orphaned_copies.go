package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// clustersWithCopies are those that may hold a copy of the last attempt which the hub does
// not know, because the quota was reserved again before Kueue could remove the copy. A copy
// that runs is adopted if its cluster is nominated again; otherwise Kueue can neither record
// nor remove it. Kueue deletes a copy that it recorded, if it can reach the cluster.
//
// For a slice that replaces another one, Kueue removes no copy: they are the clusters of both slices,
// however long ago.
func clustersWithCopies(s *Situation) []string {
	if s.Dispatch() == Local {
		return nil
	}
	if len(s.Job.SliceOn) > 0 {
		return slices.Clone(s.Job.SliceOn)
	}
	copies, reserved := s.History.Copies, kueuestate.QuotaReservedAt(s.Workload)
	return slices.DeleteFunc(slices.Clone(copies.Clusters), func(c string) bool {
		hadTime := copies.Recorded || reserved.Sub(copies.LostAt) > timing.CopyCleanup
		return s.MultiKueue.isConnected(c) && reserved.Sub(s.MultiKueue.ConnectedSince[c]) > timing.CopyCleanup && hadTime
	})
}

// WithRecordedCopies returns the situation with the clusters that may hold copies of the recorded attempt, if the
// workload has lost the quota of that attempt. A process that begins knows it from the record, and from the checks:
//  1. Kueue resets the gate's check, which is Ready, when an eviction begins.
//  2. It resets MultiKueue's check in the same write, if a cluster had admitted the workload.
//  3. If a worker ended the workload, MultiKueue's check was Retry, and has a count of these.
//
// False = there are no copies, or nothing shows them.
func (s *Situation) WithRecordedCopies() (*Situation, bool) {
	r := s.Record
	members := slices.DeleteFunc(slices.Clone(r.Nominated), func(c string) bool { return !s.MultiKueue.isConnected(c) && s.MultiKueue.Disconnected[c] == "" })
	if r.Err != nil || len(members) == 0 || r.Repair || r.Yields > 0 || r.IsCurrent(kueuestate.QuotaReservedAt(s.Workload)) ||
		s.Dispatch() != OwnDispatch || len(s.Checks.Own) != 1 || !isPending(s) || kueuestate.IsFinished(s.Workload) {
		return s, false
	}
	lostAt, admission := s.Check().LastTransitionTime, kueuestate.FindCheck(s.Workload, s.Checks.MultiKueue)
	wasReset := !admission.LastTransitionTime.Before(&lostAt)
	if lostAt.Add(time.Second).Before(r.NominatedAt) || wasReset && admission.RetryCount != nil {
		return s, false
	}
	h := s.History
	h.Copies = possibleCopies{Clusters: members, Recorded: wasReset, LostAt: lostAt.Time}
	return s.WithHistory(h), true
}

// waitForCopies keeps a workload from going elsewhere while a cluster that may hold a copy is
// unreachable, or may be.
//  1. The workload loses its quota while cluster1, which runs its copy, is unreachable.
//  2. The workload is sent to cluster2 and admitted there.
//  3. cluster1 comes back. Kueue prefers the copy that was admitted first and removes the other.
//
// The wait ends with the time after which a nomination is widened, a minute at most.
func waitForCopies(s *Situation, d gate.Decision) (gate.Decision, time.Duration) {
	copies := s.History.Copies
	away := slices.DeleteFunc(clustersWithCopies(s), func(c string) bool { return s.MultiKueue.Disconnected[c] == "" })
	until, why := copies.LostAt.Add(min(s.Gate.widenAfter(), timing.MaxCopyWait)), "which Kueue can't reach"
	if len(away) == 0 && copies.Recorded && !slices.Contains(copies.Clusters, d.Order[0]) {
		away, until, why = copies.Clusters, copies.LostAt.Add(timing.OutageDetection), "from which Kueue may not have removed it yet"
	}
	wait := until.Sub(s.Now)
	if len(away) == 0 || wait <= 0 {
		return d, 0
	}
	return gate.Decision{State: gate.Pending, Reason: gate.ReasonOrphanedCopy, Verdicts: d.Verdicts, Message: gate.Truncate(fmt.Sprintf(
		"waits until %s for its last copy on %s, %s", until.UTC().Format(time.TimeOnly+" UTC"), strings.Join(away, ", "), why))}, wait
}
