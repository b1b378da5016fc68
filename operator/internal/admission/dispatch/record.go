// Package dispatch keeps the record of a workload's nominations, and decides when and how
// far a nomination is widened.
package dispatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// MaxNominated is the maximum number of nominated clusters in Kueue's API.
const MaxNominated = 20

// maxCount is the largest number in a record. Users may write the annotation, and a number near the
// end of its type would overflow: an attempt below 1 is never the current one, so that each
// reconciliation would begin another attempt.
const maxCount = 1 << 31

// Record is the history of a workload's nominations. Kueue clears its own list on an
// eviction, so the record is stored in the annotation v1alpha1.DispatchAnnotation. The
// controller writes the annotation before each nomination.
//
// An attempt is the nominations of one quota reservation.
type Record struct {
	// Attempt counts attempts from 1. Together with the number of evictions it seeds the
	// random choice among clusters.
	Attempt int `json:"attempt"`
	// QuotaReservedAt identifies the quota reservation of the current attempt: the transition time
	// of the condition QuotaReserved, by Kueue's clock.
	QuotaReservedAt time.Time `json:"quotaReservedAt,omitzero"`
	// NominatedAt is the time of the current attempt's first nomination.
	NominatedAt time.Time `json:"nominatedAt,omitzero"`
	// Nominated are the clusters nominated in the current attempt.
	Nominated []string `json:"nominated,omitempty"`
	// Preferences are the clusters that any attempt was sent to, and those that the workload avoids.
	Preferences []Preference `json:"preferences,omitempty"`
	// WidenedAt is when the current attempt's nomination was last widened. Zero means never.
	WidenedAt time.Time `json:"widenedAt,omitzero"`
	// UnplacedSince is since when complete metrics prove that no cluster has room. Zero means
	// that they do not prove so now. Only gates with giveUpAfterSeconds use the field.
	UnplacedSince time.Time `json:"unplacedSince,omitzero"`
	// UnplacedSeconds is the length of all such periods that have ended since the last
	// nomination.
	UnplacedSeconds int64 `json:"unplacedSeconds,omitempty"`
	// LastYield is when the workload last returned its quota.
	LastYield time.Time `json:"lastYield,omitzero"`
	// Yields counts the yields since the last nomination.
	Yields int `json:"yields,omitempty"`
	// WaitsSince is when the workload first waited for a place since the last nomination, if it
	// has yielded since.
	WaitsSince time.Time `json:"waitsSince,omitzero"`
	// Returned is the quota that a yielded or parked workload gave back: its queue and flavors.
	Returned *kueue.Admission `json:"returned,omitempty"`
	// Parked is why no cluster could start the workload, if it returned its quota for that reason. Empty means that it
	// did not.
	Parked string `json:"parked,omitempty"`
	// SleepsUntil is when the operator activates a workload that it deactivated. Zero means active.
	SleepsUntil time.Time `json:"sleepsUntil,omitzero"`
	// Reclaimed is the last time that a ReclaimPolicy returned the workload to its queue.
	Reclaimed *Reclaim `json:"reclaimed,omitempty"`
	// Repair is true if the current attempt completes a stuck eviction.
	Repair bool `json:"repair,omitempty"`
	// Passed is what a gate in mode Shadow would have done. nil = no such gate let the workload pass.
	Passed *Passed `json:"passed,omitempty"`
	// Reason of the latest change, for users.
	Reason string `json:"reason,omitempty"`
}

// ReasonReclaimed is the reason in the record of a reclaimed workload, and of its event.
const ReasonReclaimed = "Reclaimed"

// Reclaim records that a ReclaimPolicy returned the workload to its queue.
type Reclaim struct {
	Policy string    `json:"policy"`
	At     time.Time `json:"at"`
	// PauseUntil is the earliest end of the pause that follows.
	PauseUntil time.Time `json:"pauseUntil"`
	// Cause of the return, for users.
	Cause string `json:"cause"`
}

// Decode returns the record in a workload's annotations. Without the annotation it returns
// the zero Record. It returns an error if the annotation is not valid JSON, or has numbers that
// the operator never writes. Characters that are not printable are dropped: explain shows the text on
// the terminals of administrators, and users may write the annotation.
func Decode(annotations map[string]string) (Record, error) {
	var r Record
	text := annotations[v1alpha1.DispatchAnnotation]
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("annotation %s: %w", v1alpha1.DispatchAnnotation, err)
	}
	for _, n := range []int64{int64(r.Attempt), int64(r.Yields), r.UnplacedSeconds} {
		if n < 0 || n > maxCount {
			return Record{}, fmt.Errorf("annotation %s: the number %d is not from the operator", v1alpha1.DispatchAnnotation, n)
		}
	}
	r.Reason, r.Parked = printable(r.Reason), printable(r.Parked)
	for i := range r.Nominated {
		r.Nominated[i] = printable(r.Nominated[i])
	}
	for i := range r.Preferences {
		p := &r.Preferences[i]
		p.Cluster, p.Why = printable(p.Cluster), printable(p.Why)
	}
	if r.Reclaimed != nil {
		r.Reclaimed.Policy, r.Reclaimed.Cause = printable(r.Reclaimed.Policy), printable(r.Reclaimed.Cause)
	}
	if p := r.Passed; p != nil {
		p.Cluster, p.Reason, p.Message, p.Outcome = printable(p.Cluster), printable(p.Reason), printable(p.Message), v1alpha1.GateOutcome(printable(string(p.Outcome)))
	}
	return r, nil
}

// printable returns a text without control characters.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, text)
}

// Until returns the record without times in the future, which the operator never writes: users may
// write the annotation. Without a limit, a workload with such a time would neither yield nor give up,
// and would keep devices in the ledger. SleepsUntil and Reclaimed concern only an inactive workload.
func (r Record) Until(now time.Time) Record {
	for _, at := range []*time.Time{&r.NominatedAt, &r.WidenedAt} {
		if at.After(now) {
			*at = timestamp(now)
		}
	}
	if r.Passed != nil && !r.Passed.isPlausible(now) {
		r.Passed = nil
	}
	for _, at := range []*time.Time{&r.UnplacedSince, &r.LastYield, &r.WaitsSince} {
		if at.After(now.Add(timing.MaxClockSkew)) {
			*at = time.Time{}
		}
	}
	return r
}

// Encode returns the annotation's text. It panics if a time is outside the years 0 to 9999,
// which neither Decode nor the system clock returns.
func (r Record) Encode() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Errorf("encode annotation %s: %w", v1alpha1.DispatchAnnotation, err))
	}
	return string(text)
}

// timestamp rounds to milliseconds, so that a record equals its decoded annotation.
func timestamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Patch returns a merge patch that sets the annotation and, unless active is nil, spec.active,
// at a resourceVersion. Both are in one write, so that a workload is never deactivated without
// the time of its activation.
func (r Record) Patch(resourceVersion string, active *bool) ([]byte, error) {
	body := map[string]any{"metadata": map[string]any{
		"resourceVersion": resourceVersion,
		"annotations":     map[string]string{v1alpha1.DispatchAnnotation: r.Encode()},
	}}
	if active != nil {
		body["spec"] = map[string]any{"active": *active}
	}
	return json.Marshal(body)
}

// Begin starts a new attempt with these clusters, for the quota that was reserved at the given
// time. Everything that is recorded about the wait for a place is reset. A workload that is
// deactivated, whose eviction a nomination completes, is still activated at the recorded time.
func (r Record) Begin(clusters []string, reserved time.Time, reason string, now time.Time) Record {
	return Record{
		Attempt:         r.Attempt + 1,
		QuotaReservedAt: timestamp(reserved),
		NominatedAt:     timestamp(now),
		Nominated:       slices.Clone(clusters),
		Preferences:     active(r.withSent(clusters), now),
		LastYield:       r.LastYield,
		SleepsUntil:     r.SleepsUntil,
		Reclaimed:       r.Reclaimed,
		Passed:          r.PassedUnder(reserved),
		Reason:          reason,
	}
}

// BeginRepair starts a new attempt whose nomination completes a stuck eviction.
func (r Record) BeginRepair(clusters []string, reserved time.Time, reason string, now time.Time) Record {
	r = r.Begin(clusters, reserved, reason, now)
	r.Repair = true
	return r
}

// Widen replaces the current attempt's nomination by a longer list of clusters.
func (r Record) Widen(clusters []string, reason string, now time.Time) Record {
	r.WidenedAt, r.Reason = timestamp(now), reason
	r.Nominated = slices.Clone(clusters)
	r.Preferences = r.withSent(clusters)
	return r
}

// IsCurrent reports whether the recorded attempt belongs to the quota that was reserved at
// the given time. An older attempt ended with an eviction. Only times of Kueue's clock are
// compared.
func (r Record) IsCurrent(reserved time.Time) bool {
	return r.Attempt > 0 && r.QuotaReservedAt.Equal(timestamp(reserved))
}

// IsOutlived reports whether the nominated clusters are those of a repair whose quota is no longer
// reserved: they completed a stuck eviction, and the workload has other quota now.
func (r Record) IsOutlived(nominated []string, reserved time.Time) bool {
	return r.Repair && !r.QuotaReservedAt.IsZero() && !r.IsCurrent(reserved) && len(r.Foreign(nominated)) == 0
}

// Adopt records clusters that the current attempt did not nominate: another component did. If
// the workload has other quota than in the recorded attempt, a new attempt begins.
func (r Record) Adopt(nominated []string, reserved, now time.Time) Record {
	const reason = "adopted an existing nomination"
	if !r.IsCurrent(reserved) {
		return r.Begin(nominated, reserved, reason, now)
	}
	r.Nominated, r.Reason = slices.Clone(nominated), reason
	r.Preferences = r.withSent(nominated)
	return r
}

// Foreign returns the clusters that the current attempt did not nominate.
func (r Record) Foreign(clusters []string) []string { return without(clusters, r.Nominated) }

// Revoked returns the clusters of the current attempt that another component removed from
// the workload's nominated clusters. seen are the clusters that were observed on that list:
// a cluster that never appeared was not revoked, its nomination was not written.
func (r Record) Revoked(nominated, seen []string) []string {
	missing := without(r.Nominated, nominated)
	return slices.DeleteFunc(missing, func(c string) bool { return !slices.Contains(seen, c) })
}

// Yielded records that the workload returned the quota that it held since quotaSince.
func (r Record) Yielded(quotaSince, now time.Time) Record {
	r = r.returning(quotaSince, now)
	r.LastYield, r.Reason = timestamp(now), "Yield"
	r.Yields++
	return r
}

// Park records that the workload returned its quota until a cluster could start it. why states what all clusters lack.
func (r Record) Park(why string, quotaSince, now time.Time) Record {
	r = r.returning(quotaSince, now)
	r.Reason, r.Parked = "Parked", why
	return r
}

// returning records that the workload returns its quota, and keeps its place in the gate's order.
func (r Record) returning(quotaSince, now time.Time) Record {
	r = r.CountUnplaced(false, quotaSince, now)
	if r.WaitsSince.IsZero() {
		r.WaitsSince = timestamp(quotaSince)
	}
	r.SleepsUntil = timestamp(now).Add(timing.YieldSleep)
	return r
}

// WithReturned keeps what the returned quota assigned: a queue, and flavors and numbers of pods for each pod set.
func (r Record) WithReturned(quota *kueue.Admission) Record {
	if quota == nil {
		return r
	}
	kept := &kueue.Admission{ClusterQueue: quota.ClusterQueue}
	for _, a := range quota.PodSetAssignments {
		kept.PodSetAssignments = append(kept.PodSetAssignments, kueue.PodSetAssignment{Name: a.Name, Flavors: a.Flavors, Count: a.Count})
	}
	r.Returned = kept
	return r
}

// Requeued records that the workload returns to its queue. It pauses as after a yield: a copy
// that Kueue had no time to remove would be nominated again. The eviction removes the nomination of
// a repair.
func (r Record) Requeued(reason string, now time.Time) Record {
	r.Repair = false
	r.Reason, r.SleepsUntil = reason, timestamp(now).Add(timing.YieldSleep)
	return r
}

// Reclaim records that a policy returns the running workload to its queue. The workload pauses at
// least as long as after a yield, and as long as its pods may take to end.
func (r Record) Reclaim(policy, cause string, gracePeriod time.Duration, now time.Time) Record {
	at := timestamp(now)
	until := at.Add(min(max(gracePeriod, timing.YieldSleep), timing.MaxReclaimPause))
	r.Reclaimed = &Reclaim{Policy: policy, At: at, PauseUntil: until, Cause: cause}
	r.Reason, r.SleepsUntil = ReasonReclaimed, until
	return r
}

// IsReclaimed reports whether the workload is deactivated because a policy reclaimed it.
func (r Record) IsReclaimed() bool {
	return r.Reclaimed != nil && !r.SleepsUntil.IsZero() && r.SleepsUntil.Equal(r.Reclaimed.PauseUntil)
}

// Pause returns for how long a deactivated workload pauses. One that was never sent and has never returned quota, but was
// created inactive, leaves no copy and nothing to others.
func (r Record) Pause() time.Duration {
	switch {
	case r.Attempt == 0 && r.LastYield.IsZero() && r.Reclaimed == nil:
		return 0
	case !r.IsReclaimed():
		return timing.YieldSleep
	}
	return min(max(r.Reclaimed.PauseUntil.Sub(r.Reclaimed.At), timing.YieldSleep), timing.MaxReclaimPause)
}

// Woken records that the deactivated workload is active again.
func (r Record) Woken() Record {
	r.SleepsUntil, r.Returned, r.Parked = time.Time{}, nil, ""
	return r
}

// YieldPause returns the minimum time between two yields, after this many yields.
func YieldPause(yields int) time.Duration {
	pause := timing.FirstYieldPause
	for i := 1; i < yields && pause < timing.LastYieldPause; i++ {
		pause *= 2
	}
	return min(pause, timing.LastYieldPause)
}

// UnplacedFor returns for how long no cluster had room while the workload held quota, since
// the last nomination. quotaSince is since when the workload holds its current quota.
func (r Record) UnplacedFor(quotaSince, now time.Time) time.Duration {
	earlier := time.Duration(r.UnplacedSeconds) * time.Second
	if r.UnplacedSince.IsZero() {
		return earlier
	}
	since := r.UnplacedSince
	if quotaSince.After(since) {
		since = quotaSince
	}
	return earlier + max(now.Sub(since), 0)
}

// CountUnplaced starts or stops the clock of UnplacedFor.
func (r Record) CountUnplaced(on bool, quotaSince, now time.Time) Record {
	switch {
	case on && r.UnplacedSince.IsZero():
		r.UnplacedSince = timestamp(now)
	case !on:
		r.UnplacedSeconds, r.UnplacedSince = int64(r.UnplacedFor(quotaSince, now).Seconds()), time.Time{}
	}
	return r
}

// GivenUp records that the workload is given up. A user who activates it again gives it the whole time
// of giveUpAfterSeconds again.
func (r Record) GivenUp() Record {
	r.UnplacedSince, r.UnplacedSeconds = time.Time{}, 0
	return r
}

// HasClockOf reports whether the clock of UnplacedFor is that of another record.
func (r Record) HasClockOf(other Record) bool {
	return r.UnplacedSince.Equal(other.UnplacedSince) && r.UnplacedSeconds == other.UnplacedSeconds
}

func without(clusters, excluded []string) []string {
	return slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return slices.Contains(excluded, c) })
}

func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
