package dispatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// MaxNominated clusters, as Kueue's API allows.
const MaxNominated = 20

// Dispatch is what must outlive an eviction, which clears Kueue's own record.
// It stands in the annotation plimsoll.dev/dispatch, written before a nomination and
// when time without a place starts or stops to count.
type Record struct {
	// Attempt counts nominations from scratch, and seeds the draw with the evictions.
	Attempt int `json:"attempt"`
	// NominatedAt is when the current attempt was nominated first.
	NominatedAt time.Time `json:"nominatedAt,omitzero"`
	// Nominated in the current attempt.
	Nominated []string `json:"nominated,omitempty"`
	// Ever nominated, over all attempts.
	EverNominated []string  `json:"ever,omitempty"`
	WidenedAt     time.Time `json:"widenedAt,omitzero"`
	// UnplacedSince is since when every cluster says that it has no room; zero = not
	// so. It is kept for gates that give up.
	UnplacedSince time.Time `json:"unplacedSince,omitzero"`
	// UnplacedSeconds is how long that was so before, since the last nomination.
	UnplacedSeconds int64     `json:"unplacedSeconds,omitempty"`
	LastYield       time.Time `json:"lastYield,omitzero"`
	// Yields since the last nomination.
	Yields int `json:"yields,omitempty"`
	// SleepsUntil is when a workload that yielded is activated again; zero = awake.
	SleepsUntil time.Time `json:"sleepsUntil,omitzero"`
	Reason      string    `json:"reason,omitempty"`
}

// DecodeDispatch reads the annotation; absent is the zero Dispatch.
func Decode(annotations map[string]string) (Record, error) {
	var d Record
	text := annotations[v1alpha1.DispatchAnnotation]
	if text == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return Record{}, fmt.Errorf("annotation %s: %w", v1alpha1.DispatchAnnotation, err)
	}
	return d, nil
}

// Encode as the annotation's text.
func (d Record) Encode() string {
	text, err := json.Marshal(d)
	if err != nil {
		return "{}"
	}
	return string(text)
}

// Begin a new attempt with these clusters: what it is to wait for a place starts anew.
func (d Record) Begin(clusters []string, reason string, now time.Time) Record {
	d.Attempt++
	d.NominatedAt, d.WidenedAt = now.UTC().Truncate(time.Millisecond), time.Time{}
	d.UnplacedSince, d.UnplacedSeconds, d.Yields, d.SleepsUntil = time.Time{}, 0, 0, time.Time{}
	d.Nominated, d.Reason = slices.Clone(clusters), reason
	d.EverNominated = union(d.EverNominated, clusters)
	return d
}

// Widen the current attempt to these clusters.
func (d Record) Widen(clusters []string, reason string, now time.Time) Record {
	d.WidenedAt, d.Reason = now.UTC().Truncate(time.Millisecond), reason
	d.Nominated = slices.Clone(clusters)
	d.EverNominated = union(d.EverNominated, clusters)
	return d
}

// Yielded records that the quota held since then was given back.
func (d Record) Yielded(held, now time.Time) Record {
	d = d.CountUnplaced(false, held, now)
	d.LastYield, d.Reason = now.UTC().Truncate(time.Millisecond), "Yield"
	d.SleepsUntil = d.LastYield.Add(timing.YieldSleep)
	d.Yields++
	return d
}

// Woken records that the workload is in its queue again.
func (d Record) Woken() Record {
	d.SleepsUntil = time.Time{}
	return d
}

// Current says whether this is the attempt of the quota that was reserved then. An
// older one ended with an eviction.
func (d Record) IsCurrent(reserved time.Time) bool { return !d.NominatedAt.Before(reserved) }

// Adopt what is nominated without this attempt's doing: by somebody else, or from
// before the quota was reserved, whereupon a new attempt begins.
func (d Record) Adopt(nominated []string, reserved, now time.Time) Record {
	const reason = "was nominated already"
	if !d.IsCurrent(reserved) {
		if reserved.After(now) { // by another clock than ours
			now = reserved
		}
		return d.Begin(nominated, reason, now)
	}
	d.Nominated, d.Reason = slices.Clone(nominated), reason
	d.EverNominated = union(d.EverNominated, nominated)
	return d
}

// Foreign are the clusters that this attempt did not nominate.
func (d Record) Foreign(clusters []string) []string { return without(clusters, d.Nominated) }

// Revoked are the clusters of this attempt that were seen to be nominated, and that
// somebody took off the list since.
func (d Record) Revoked(nominated, seen []string) []string {
	return slices.DeleteFunc(without(d.Nominated, nominated), func(c string) bool { return !slices.Contains(seen, c) })
}

func without(clusters, these []string) []string {
	return slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return slices.Contains(these, c) })
}

// Phase of a nomination that no cluster has admitted yet.
type Stage string

const (
	// PhaseWait for the nominated clusters.
	StageWait Stage = "Waiting"
	// PhaseWiden to more clusters that have room.
	StageWiden Stage = "Widened"
	// PhaseHeal also nominates whatever was ever nominated, blind to fit: a copy
	// that was lost sight of may hold the very devices. It widens once more, too.
	StageHeal Stage = "Healed"
	// PhaseAll nominates every active cluster.
	StageAll Stage = "NominatedAll"
)

// Phase that the nomination is in, and when to look again.
func (d Record) Stage(widen v1alpha1.Widen, now time.Time) (Stage, time.Duration) {
	after := timing.Seconds(widen.AfterSeconds, timing.DefaultWidenAfter)
	since := now.Sub(d.NominatedAt)
	switch {
	case since >= 4*after:
		return StageAll, 2 * after
	case since >= 2*after:
		return StageHeal, 4*after - since
	case since >= after:
		if again := now.Sub(d.WidenedAt); !d.WidenedAt.IsZero() && again < after {
			return StageWait, min(after-again, 2*after-since)
		}
		return StageWiden, 2*after - since
	}
	return StageWait, after - since
}

// Wider is the list to nominate in a phase: what is nominated stays (revoking a
// cluster that has admitted would be a livelock), and usable ones are added.
// order are the clusters with room, best first; usable all those that may be
// nominated at all.
func (d Record) WidenedList(phase Stage, nominated, order, usable []string, widen v1alpha1.Widen) []string {
	add := []string{}
	switch phase {
	case StageWait:
	case StageWiden:
		add = additional(nominated, order, widen.By)
	case StageHeal:
		add = d.EverNominated
		if d.WidenedAt.Before(d.NominatedAt.Add(2 * timing.Seconds(widen.AfterSeconds, timing.DefaultWidenAfter))) {
			add = union(add, additional(nominated, order, widen.By))
		}
	case StageAll:
		add = union(d.EverNominated, usable)
	}
	wider := slices.Clone(nominated)
	for _, c := range add {
		if slices.Contains(usable, c) && !slices.Contains(wider, c) && len(wider) < MaxNominated {
			wider = append(wider, c)
		}
	}
	return wider
}

// more clusters of the order than are nominated: all of them, or by many.
func additional(nominated, order []string, by *int32) []string {
	rest := without(order, nominated)
	if by != nil && len(rest) > int(*by) {
		return rest[:*by]
	}
	return rest
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

// YieldPause is how long quota is held between two yields.
func YieldPause(yields int) time.Duration {
	pause := timing.FirstYieldPause
	for i := 1; i < yields && pause < timing.LastYieldPause; i++ {
		pause *= 2
	}
	return min(pause, timing.LastYieldPause)
}

// Unplaced is how long no cluster had room while the workload held quota. held is
// since when it holds it now.
func (d Record) UnplacedFor(held, now time.Time) time.Duration {
	before := time.Duration(d.UnplacedSeconds) * time.Second
	if d.UnplacedSince.IsZero() {
		return before
	}
	since := d.UnplacedSince
	if held.After(since) {
		since = held
	}
	return before + max(now.Sub(since), 0)
}

// Counting starts the clock of Unplaced, or stops it.
func (d Record) CountUnplaced(on bool, held, now time.Time) Record {
	switch {
	case on && d.UnplacedSince.IsZero():
		d.UnplacedSince = now.UTC().Truncate(time.Millisecond)
	case !on && !d.UnplacedSince.IsZero():
		d.UnplacedSeconds, d.UnplacedSince = int64(d.UnplacedFor(held, now).Seconds()), time.Time{}
	}
	return d
}
