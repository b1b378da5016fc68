package dispatch

import (
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Stage of a nomination that no cluster has admitted yet. The durations are multiples of
// the gate's advanced.widenAfterSeconds, and count from when MultiKueue has copied the workload, which
// is Pace.Lag after the nomination:
//
//	since the copy   stage       nominated in addition
//	0 to 1           StageWait   nothing
//	1 to 4           StageWiden  clusters with room
//	from 4           StageAll    clusters with room, and usable clusters whose room is unknown
//
// After StageWiden has widened, StageWait applies again for one more advanced.widenAfterSeconds.
type Stage string

// Stages. The values are also the reasons of events.
const (
	StageWait  Stage = "Waiting"
	StageWiden Stage = "Widened"
	// StageAll nominates every cluster that is not known to be full. A copy on a full cluster
	// could not start.
	StageAll Stage = "NominatedAll"
)

// Pace is how fast a nomination is widened.
type Pace struct {
	WidenAfterSeconds int32
	// Lag is the time that MultiKueue takes to act on a nomination.
	Lag time.Duration
}

func (p Pace) after() time.Duration {
	return timing.Seconds(p.WidenAfterSeconds, timing.DefaultWidenAfter)
}

// Stage returns the stage of the nomination, and the time until the next one is due.
func (r Record) Stage(pace Pace, now time.Time) (Stage, time.Duration) {
	after, sinceCopy := pace.after(), now.Sub(r.NominatedAt)-pace.Lag
	switch {
	case sinceCopy >= 4*after:
		return StageAll, 2 * after
	case sinceCopy >= after:
		toAll := 4*after - sinceCopy
		if sinceWidened := now.Sub(r.WidenedAt) - pace.Lag; sinceWidened < after { // without WidenedAt, it is longer
			return StageWait, min(after-sinceWidened, toAll)
		}
		return StageWiden, min(after, toAll)
	}
	return StageWait, after - sinceCopy
}

// Clusters are the clusters that a nomination may be widened to.
type Clusters struct {
	// WithRoom, best first.
	WithRoom []string
	// Unknown are the clusters without a usable measurement of their room.
	Unknown []string
	// Usable are all clusters that may be nominated. The others are ignored.
	Usable []string
}

// WidenedList returns the clusters to nominate in a stage, at most MaxNominated. Clusters
// that are nominated already stay: if such a cluster has just admitted the workload, a
// revocation would remove the running copy.
func WidenedList(stage Stage, nominated []string, clusters Clusters) []string {
	var added []string
	switch stage {
	case StageWait:
	case StageWiden:
		added = clusters.WithRoom
	case StageAll:
		added = union(clusters.WithRoom, clusters.Unknown)
	}
	list := slices.Clone(nominated)
	for _, c := range added {
		if slices.Contains(clusters.Usable, c) && !slices.Contains(list, c) && len(list) < MaxNominated {
			list = append(list, c)
		}
	}
	return list
}

// IsOverdue reports whether the nomination should end because no cluster has admitted the
// workload: after the limit, but not before the last stage had its time.
func (r Record) IsOverdue(pace Pace, limit time.Duration, now time.Time) bool {
	return now.Sub(r.NominatedAt)-pace.Lag >= max(limit, 6*pace.after())
}
