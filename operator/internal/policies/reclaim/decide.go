package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const (
	// Window is the time that maxPerHour limits. Recorded times are rounded down to seconds.
	Window = time.Hour + time.Second
	// maxHistory is the number of records that the status can hold. It is above the highest
	// maxPerHour.
	maxHistory = 100
	// MaxListed is the number of idle workloads that the status can hold.
	MaxListed = 50
)

// Bounds are the limits of a policy.
type Bounds struct {
	Mode         v1alpha1.Mode
	Idle, MinRun time.Duration
	MaxPerHour   int
}

// BoundsOf returns the limits in a spec. Unset fields have the defaults of the API.
func BoundsOf(spec *v1alpha1.ReclaimPolicySpec) Bounds {
	minRun := int32(defaultSeconds)
	if spec.MinRunSeconds != nil {
		minRun = *spec.MinRunSeconds
	}
	return Bounds{
		Mode: cmp.Or(spec.Mode, v1alpha1.ModeEnforce), Idle: time.Duration(cmp.Or(spec.IdleSeconds, defaultSeconds)) * time.Second,
		MinRun: time.Duration(minRun) * time.Second, MaxPerHour: int(cmp.Or(spec.MaxPerHour, 4)),
	}
}

// defaultSeconds is the default of idleSeconds and minRunSeconds.
const defaultSeconds = 1800

// Decision is what a round decides about an idle workload.
type Decision struct {
	*Candidate
	// IdleFor is for how long all of its devices have been idle.
	IdleFor time.Duration
	State   v1alpha1.IdleState
	Reason  string
}

// Cause describes the idleness, for users.
func (d *Decision) Cause() string {
	return fmt.Sprintf("its %d devices on %s have been idle for %s", d.Devices, d.Owner.Cluster, d.IdleFor.Round(time.Second))
}

// Decide returns a decision for each candidate whose devices have all been idle for long enough.
// The order is that in which they are reclaimed: the lowest priority first, then the most wasted
// device-seconds. Those that the API server refused to write come last. At most one workload of each
// group is selected, so that the next round sees whether others still wait.
func Decide(bounds Bounds, candidates []*Candidate, history []v1alpha1.ReclaimRecord, now time.Time) []Decision {
	var idle []Decision
	for _, c := range candidates {
		if idleFor, ok := c.idleFor(now); ok && idleFor >= bounds.Idle {
			idle = append(idle, Decision{Candidate: c, IdleFor: idleFor})
		}
	}
	slices.SortStableFunc(idle, func(a, b Decision) int {
		return cmp.Or(a.RefusedAt.Compare(b.RefusedAt), cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.waste(), a.waste()),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	left, first := Remaining(bounds.MaxPerHour, history, bounds.Mode, now), map[string]*Decision{}
	for i := range idle {
		d := &idle[i]
		d.State, d.Reason = decideOne(bounds, d, history, first[d.Group], left, now)
		if d.State == v1alpha1.IdleSelected {
			first[d.Group] = d
			left--
		}
	}
	return idle
}

func (d *Decision) waste() float64 { return float64(d.Devices) * d.IdleFor.Seconds() }

func decideOne(bounds Bounds, d *Decision, history []v1alpha1.ReclaimRecord, first *Decision, left int, now time.Time) (state v1alpha1.IdleState, reason string) {
	switch ran := now.Sub(d.RunningSince); {
	case d.Protection != "":
		return v1alpha1.IdleProtected, d.Protection
	case ran < bounds.MinRun:
		return v1alpha1.IdleStarting, fmt.Sprintf("it has run for %s of minRunSeconds", ran.Round(time.Second))
	case !d.OthersWait:
		return v1alpha1.IdleNotNeeded, "no workload of at least its priority waits for its devices"
	case bounds.Mode == v1alpha1.ModeShadow && isRecorded(history, d.Candidate):
		return v1alpha1.IdleRecorded, "mode Shadow recorded it already"
	case bounds.Mode == v1alpha1.ModeEnforce && d.IsRefused(now):
		return v1alpha1.IdleLimited, "the API server refused the write within the last hour"
	case d.Returning != "":
		return v1alpha1.IdleLimited, "the return of " + d.Returning + " is not complete"
	case first != nil:
		return v1alpha1.IdleLimited, first.Namespace + "/" + first.Name + " comes first"
	case left <= 0:
		return v1alpha1.IdleLimited, fmt.Sprintf("maxPerHour is reached: %d within the last hour", bounds.MaxPerHour)
	}
	return v1alpha1.IdleSelected, ""
}

// Remaining returns how many workloads a policy may still return in a mode, whatever the reason.
func Remaining(maxPerHour int, history []v1alpha1.ReclaimRecord, mode v1alpha1.Mode, now time.Time) int {
	return maxPerHour - countRecent(history, mode, now)
}

// ReturnedRecently reports whether a policy returned a workload within the hour, or would have in mode
// Shadow.
func ReturnedRecently(history []v1alpha1.ReclaimRecord, mode v1alpha1.Mode, uid string, now time.Time) bool {
	return slices.ContainsFunc(history, func(r v1alpha1.ReclaimRecord) bool {
		return r.UID == uid && r.Mode == mode && now.Sub(r.Time.Time) < Window
	})
}

// countRecent counts the records of a mode within the window. A record from the future, as after
// a change of the clock, counts too.
func countRecent(history []v1alpha1.ReclaimRecord, mode v1alpha1.Mode, now time.Time) int {
	n := 0
	for i := range history {
		if history[i].Mode == mode && now.Sub(history[i].Time.Time) < Window {
			n++
		}
	}
	return n
}

// isRecorded reports whether mode Shadow recorded the present run of a workload as idle.
func isRecorded(history []v1alpha1.ReclaimRecord, c *Candidate) bool {
	return slices.ContainsFunc(history, func(r v1alpha1.ReclaimRecord) bool {
		return r.Mode == v1alpha1.ModeShadow && r.Move == nil && r.UID == c.UID && r.RunningSince.Time.Equal(c.RunningSince.Truncate(time.Second))
	})
}

// Record returns the history with the selected workloads.
func Record(history []v1alpha1.ReclaimRecord, decisions []Decision, mode v1alpha1.Mode, now time.Time) []v1alpha1.ReclaimRecord {
	history = slices.Clone(history)
	for i := range decisions {
		if d := &decisions[i]; d.State == v1alpha1.IdleSelected {
			history = Append(history, v1alpha1.ReclaimRecord{
				Time: metav1.NewTime(now).Rfc3339Copy(), Mode: mode, Namespace: d.Namespace, Name: d.Name, UID: d.UID,
				RunningSince: metav1.NewTime(d.RunningSince).Rfc3339Copy(), Cluster: d.Owner.Cluster, Devices: d.Devices, IdleSeconds: int64(d.IdleFor.Seconds()),
			}, now)
		}
	}
	return history
}

// Append returns the history with a record. The oldest records are dropped, but none that counts for
// maxPerHour.
func Append(history []v1alpha1.ReclaimRecord, record v1alpha1.ReclaimRecord, now time.Time) []v1alpha1.ReclaimRecord {
	history = append(slices.Clone(history), record)
	for len(history) > maxHistory {
		// maxPerHour is at most 60, so one of the records is old or of mode Shadow.
		drop := slices.IndexFunc(history, func(r v1alpha1.ReclaimRecord) bool {
			return r.Mode == v1alpha1.ModeShadow || now.Sub(r.Time.Time) >= Window
		})
		history = slices.Delete(history, max(0, drop), max(0, drop)+1)
	}
	return history
}

// Remove returns the history without the records of this round for workloads, given by UID, that could
// not be reclaimed.
func Remove(history []v1alpha1.ReclaimRecord, uids []string, now time.Time) []v1alpha1.ReclaimRecord {
	at := metav1.NewTime(now).Rfc3339Copy()
	return slices.DeleteFunc(slices.Clone(history), func(r v1alpha1.ReclaimRecord) bool {
		return r.Time.Equal(&at) && slices.Contains(uids, r.UID)
	})
}
