package rebalance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// settle is the time after the end of pods from which samples show their devices as free.
const settle = 15 * time.Second

// Bounds are the limits of a policy, and what counts towards them.
type Bounds struct {
	Mode   v1alpha1.Mode
	MinRun time.Duration
	// Remaining is how many workloads the policy may still return within the hour.
	Remaining int
	History   []v1alpha1.ReclaimRecord
	// Moves are the moves of all policies in mode Enforce.
	Moves []v1alpha1.ReclaimRecord
	// Idle is a workload that the round returns because its devices are idle. Empty means none.
	Idle string
	// Unplaced are the UIDs of moved workloads that no cluster has admitted again.
	Unplaced map[string]bool
}

// ModeOf returns the mode of moves in a spec, and false if the policy moves nothing.
func ModeOf(spec *v1alpha1.ReclaimPolicySpec) (v1alpha1.Mode, bool) {
	if spec.Rebalance == nil {
		return "", false
	}
	return cmp.Or(spec.Rebalance.Mode, spec.Mode, v1alpha1.ModeEnforce), true
}

// MovesOf returns the moves in mode Enforce that policies recorded.
func MovesOf(policies []v1alpha1.ReclaimPolicy) []v1alpha1.ReclaimRecord {
	var moves []v1alpha1.ReclaimRecord
	for i := range policies {
		for _, r := range policies[i].Status.History {
			if r.Mode == v1alpha1.ModeEnforce && r.Move != nil {
				moves = append(moves, r)
			}
		}
	}
	return moves
}

// mayMove reports whether a workload may be moved at all. One that returned to its queue within the hour,
// by whatever policy, is not moved, and neither is one whose quota another one would take, or that the
// API server refused to write.
func (b *Bounds) mayMove(c *reclaim.Candidate, now time.Time) bool {
	return c.Protection == "" && !c.IsRefused(now) && now.Sub(c.RunningSince) >= b.MinRun && c.QuotaWantedBy == "" &&
		now.Sub(c.ReclaimedAt) >= reclaim.Window && !reclaim.ReturnedRecently(b.History, b.Mode, c.UID, now) &&
		!reclaim.ReturnedRecently(b.Moves, v1alpha1.ModeEnforce, c.UID, now)
}

// Decision is what a round decides for a waiting workload.
type Decision struct {
	*Waiting
	// Candidate moves to the cluster To. Nil means none.
	Candidate *reclaim.Candidate
	To        string
	State     v1alpha1.MoveState
	Reason    string
}

// Cause describes why the workload moves, for users.
func (d *Decision) Cause() string {
	return fmt.Sprintf("%s waits for devices on %s, which has room for it then, and the workload fits on %s", d.Hold.Workload, d.Hold.Cluster, d.To)
}

// Decide returns a decision for each waiting workload, in the order of their ranks. movable are those of
// Shortlist, by the UID of the waiting workload. At most one workload moves in a round, because the
// room that it takes elsewhere is in no ledger until it is sent there.
func Decide(bounds Bounds, waiting []*Waiting, movable map[string][]Movable, now time.Time) []Decision {
	waiting = slices.SortedFunc(slices.Values(waiting), func(a, b *Waiting) int { return a.Hold.Rank.ComparePriority(b.Hold.Rank) })
	var decisions []Decision
	first := ""
	for _, w := range waiting {
		d := bounds.decideOne(w, movable[w.Hold.UID], first, now)
		if d.State == v1alpha1.MoveSelected {
			first = d.Candidate.Namespace + "/" + d.Candidate.Name
		}
		decisions = append(decisions, d)
	}
	return decisions
}

func (b *Bounds) decideOne(w *Waiting, movable []Movable, first string, now time.Time) Decision {
	d := Decision{Waiting: w, State: v1alpha1.MoveNone}
	// What others wait for may have changed since the shortlist.
	movable = slices.DeleteFunc(slices.Clone(movable), func(m Movable) bool { return !b.mayMove(m.Candidate, now) })
	switch {
	case w.Problem != "":
		d.Reason = w.Problem
	case b.isRecorded(w):
		d.State, d.Reason = v1alpha1.MoveRecorded, "mode Shadow recorded a move for it already"
	case b.isSettling(w):
		d.State, d.Reason = v1alpha1.MoveSettling, "samples do not show yet what the last move returned"
	case w.hasOnTheWay():
		d.Reason = "workloads are on their way to " + w.Hold.Cluster + ", or leave it"
	case len(movable) == 0:
		d.Reason = "without any single workload that may be moved and has a lower priority, it has no room there either"
	default:
		d.choose(b, movable, first, now)
	}
	return d
}

// choose takes the first workload that fits on another cluster.
func (d *Decision) choose(b *Bounds, movable []Movable, first string, now time.Time) {
	for i := range movable {
		m := &movable[i]
		if d.To = m.Destination(now); d.To == "" {
			continue
		}
		d.Candidate = m.Candidate
		d.State, d.Reason = b.limit(m.Candidate, first, now)
		return
	}
	d.Reason = movable[0].Namespace + "/" + movable[0].Name + " would make room, but fits on no other cluster"
	if movable[0].Problem != "" {
		d.Reason += ": " + movable[0].Problem
	}
}

// limit returns whether a workload moves in this round.
func (b *Bounds) limit(c *reclaim.Candidate, first string, now time.Time) (state v1alpha1.MoveState, reason string) {
	switch {
	case c.Returning != "":
		return v1alpha1.MoveLimited, "the return of " + c.Returning + " is not complete"
	case b.Idle != "":
		return v1alpha1.MoveLimited, b.Idle + ", whose devices are idle, comes first"
	case first != "":
		return v1alpha1.MoveLimited, first + " comes first"
	case b.moving(now) != "":
		return v1alpha1.MoveLimited, b.moving(now) + " was moved and does not run again yet"
	case b.Remaining <= 0:
		return v1alpha1.MoveLimited, "maxPerHour is reached"
	}
	return v1alpha1.MoveSelected, ""
}

// moving returns a workload that some policy moved and that does not run again, for at most
// timing.MoveAvoidance after its pause. Each policy waits for it: the ledger does not know where it will go.
func (b *Bounds) moving(now time.Time) string {
	for i := range b.Moves {
		r := &b.Moves[i]
		if b.Mode == v1alpha1.ModeEnforce && b.Unplaced[r.UID] && now.Sub(r.Move.PodsEndBy.Time) < timing.MoveAvoidance {
			return r.Namespace + "/" + r.Name
		}
	}
	return ""
}

// isRecorded reports whether mode Shadow recorded a move for the workload since it waits.
func (b *Bounds) isRecorded(w *Waiting) bool {
	return b.Mode == v1alpha1.ModeShadow && slices.ContainsFunc(b.History, func(r v1alpha1.ReclaimRecord) bool {
		return r.Mode == v1alpha1.ModeShadow && isFor(&r, w)
	})
}

// isFor reports whether a record is of a move for the workload, since that waits.
func isFor(r *v1alpha1.ReclaimRecord, w *Waiting) bool {
	return r.Move != nil && r.Move.ForUID == w.Hold.UID && !r.Time.Time.Before(w.Hold.Rank.Since.Truncate(time.Second))
}

// isSettling reports whether some policy moved a workload for this one, and the samples of the cluster
// that it left are older than the end of its pods. The gate may hold another cluster by now.
func (b *Bounds) isSettling(w *Waiting) bool {
	return slices.ContainsFunc(b.Moves, func(r v1alpha1.ReclaimRecord) bool {
		c := w.candidate(r.Cluster)
		return isFor(&r, w) && c != nil && !c.SampledAt.After(r.Move.PodsEndBy.Add(settle))
	})
}

// Record returns the history with the selected move.
func Record(history []v1alpha1.ReclaimRecord, decisions []Decision, mode v1alpha1.Mode, now time.Time) []v1alpha1.ReclaimRecord {
	for i := range decisions {
		d := &decisions[i]
		if d.State != v1alpha1.MoveSelected {
			continue
		}
		c, at := d.Candidate, metav1.NewTime(now).Rfc3339Copy()
		history = reclaim.Append(history, v1alpha1.ReclaimRecord{
			Time: at, Mode: mode, Namespace: c.Namespace, Name: c.Name, UID: c.UID, RunningSince: metav1.NewTime(c.RunningSince).Rfc3339Copy(),
			Cluster: c.Owner.Cluster, Devices: c.Devices, Move: &v1alpha1.MoveRecord{For: d.Hold.Workload, ForUID: d.Hold.UID, To: d.To,
				PodsEndBy: metav1.NewTime(now.Add(min(max(c.GracePeriod, timing.YieldSleep), timing.MaxReclaimPause))).Rfc3339Copy()},
		}, now)
	}
	return history
}
