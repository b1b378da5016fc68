package dispatch

import (
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Stage of a nomination that no cluster has admitted yet. The durations are multiples of
// the gate's widen.afterSeconds:
//
//	since nomination   stage       nominated in addition
//	0 to 1             StageWait   nothing
//	1 to 2             StageWiden  clusters with room
//	2 to 4             StageHeal   all clusters of earlier attempts; once more, clusters with room
//	from 4             StageAll    every usable cluster
//
// After StageWiden has widened, StageWait applies again for one more widen.afterSeconds.
type Stage string

// Stages. The values are also the reasons of events.
const (
	StageWait  Stage = "Waiting"
	StageWiden Stage = "Widened"
	// StageHeal nominates clusters of earlier attempts even without room: a copy of the
	// workload that the hub no longer knows may occupy the missing devices.
	StageHeal Stage = "Healed"
	StageAll  Stage = "NominatedAll"
)

// Stage returns the stage of the nomination, and the time until the next one is due.
func (r Record) Stage(widen v1alpha1.Widen, now time.Time) (Stage, time.Duration) {
	after := timing.Seconds(widen.AfterSeconds, timing.DefaultWidenAfter)
	sinceNomination := now.Sub(r.NominatedAt)
	switch {
	case sinceNomination >= 4*after:
		return StageAll, 2 * after
	case sinceNomination >= 2*after:
		return StageHeal, 4*after - sinceNomination
	case sinceNomination >= after:
		if sinceWidened := now.Sub(r.WidenedAt); !r.WidenedAt.IsZero() && sinceWidened < after {
			return StageWait, min(after-sinceWidened, 2*after-sinceNomination)
		}
		return StageWiden, 2*after - sinceNomination
	}
	return StageWait, after - sinceNomination
}

// WidenedList returns the clusters to nominate in a stage, at most MaxNominated. Clusters
// that are nominated already stay: if such a cluster has just admitted the workload, a
// revocation would remove the running copy. order are the clusters with room, best first.
// usable are all clusters that may be nominated.
func (r Record) WidenedList(stage Stage, nominated, order, usable []string, widen v1alpha1.Widen) []string {
	var added []string
	switch stage {
	case StageWait:
	case StageWiden:
		added = nextInOrder(nominated, order, widen.By)
	case StageHeal:
		added = r.EverNominated
		// Every write triggers another reconcile, so that the stage must widen only once.
		healFrom := r.NominatedAt.Add(2 * timing.Seconds(widen.AfterSeconds, timing.DefaultWidenAfter))
		if r.WidenedAt.Before(healFrom) {
			added = union(added, nextInOrder(nominated, order, widen.By))
		}
	case StageAll:
		added = union(r.EverNominated, usable)
	}
	list := slices.Clone(nominated)
	for _, c := range added {
		if slices.Contains(usable, c) && !slices.Contains(list, c) && len(list) < MaxNominated {
			list = append(list, c)
		}
	}
	return list
}

// nextInOrder returns the next clusters of the order that are not nominated: at most by,
// or all if by is nil.
func nextInOrder(nominated, order []string, by *int32) []string {
	next := without(order, nominated)
	if by != nil && len(next) > int(*by) {
		return next[:*by]
	}
	return next
}
