package gate

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// MaxNominated clusters, as Kueue's API allows.
const MaxNominated = 20

// Dispatch is what must outlive an eviction, which clears Kueue's own record.
// It stands in the annotation plimsoll.dev/dispatch, written before a nomination and
// when time without a place starts or stops to count.
type Dispatch struct {
	// Attempt counts nominations from scratch, and seeds the draw with the evictions.
	Attempt int `json:"attempt"`
	// NominatedAt is when the current attempt was nominated first.
	NominatedAt time.Time `json:"nominatedAt,omitzero"`
	// Nominated in the current attempt.
	Nominated []string `json:"nominated,omitempty"`
	// Ever nominated, over all attempts.
	Ever      []string  `json:"ever,omitempty"`
	WidenedAt time.Time `json:"widenedAt,omitzero"`
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
func DecodeDispatch(annotations map[string]string) (Dispatch, error) {
	var d Dispatch
	text := annotations[v1alpha1.DispatchAnnotation]
	if text == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return Dispatch{}, fmt.Errorf("annotation %s: %w", v1alpha1.DispatchAnnotation, err)
	}
	return d, nil
}

// Encode as the annotation's text.
func (d Dispatch) Encode() string {
	text, err := json.Marshal(d)
	if err != nil {
		return "{}"
	}
	return string(text)
}

// Begin a new attempt with these clusters: what it is to wait for a place starts anew.
func (d Dispatch) Begin(clusters []string, reason string, now time.Time) Dispatch {
	d.Attempt++
	d.NominatedAt, d.WidenedAt = now.UTC().Truncate(time.Millisecond), time.Time{}
	d.UnplacedSince, d.UnplacedSeconds, d.Yields, d.SleepsUntil = time.Time{}, 0, 0, time.Time{}
	d.Nominated, d.Reason = slices.Clone(clusters), reason
	d.Ever = union(d.Ever, clusters)
	return d
}

// Widen the current attempt to these clusters.
func (d Dispatch) Widen(clusters []string, reason string, now time.Time) Dispatch {
	d.WidenedAt, d.Reason = now.UTC().Truncate(time.Millisecond), reason
	d.Nominated = slices.Clone(clusters)
	d.Ever = union(d.Ever, clusters)
	return d
}

// Yielded records that the quota held since then was given back.
func (d Dispatch) Yielded(held, now time.Time) Dispatch {
	d = d.Counting(false, held, now)
	d.LastYield, d.Reason = now.UTC().Truncate(time.Millisecond), "Yield"
	d.SleepsUntil = d.LastYield.Add(YieldSleep)
	d.Yields++
	return d
}

// Woken records that the workload is in its queue again.
func (d Dispatch) Woken() Dispatch {
	d.SleepsUntil = time.Time{}
	return d
}

// Current says whether this is the attempt of the quota that was reserved then. An
// older one ended with an eviction.
func (d Dispatch) Current(reserved time.Time) bool { return !d.NominatedAt.Before(reserved) }

// Adopt what is nominated without this attempt's doing: by somebody else, or from
// before the quota was reserved, whereupon a new attempt begins.
func (d Dispatch) Adopt(nominated []string, reserved, now time.Time) Dispatch {
	const reason = "was nominated already"
	if !d.Current(reserved) {
		if reserved.After(now) { // by another clock than ours
			now = reserved
		}
		return d.Begin(nominated, reason, now)
	}
	d.Nominated, d.Reason = slices.Clone(nominated), reason
	d.Ever = union(d.Ever, nominated)
	return d
}

// Foreign are the clusters that this attempt did not nominate.
func (d Dispatch) Foreign(clusters []string) []string { return without(clusters, d.Nominated) }

// Revoked are the clusters of this attempt that were seen to be nominated, and that
// somebody took off the list since.
func (d Dispatch) Revoked(nominated, seen []string) []string {
	return slices.DeleteFunc(without(d.Nominated, nominated), func(c string) bool { return !slices.Contains(seen, c) })
}

func without(clusters, these []string) []string {
	return slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return slices.Contains(these, c) })
}

// Phase of a nomination that no cluster has admitted yet.
type Phase string

const (
	// PhaseWait for the nominated clusters.
	PhaseWait Phase = "Waiting"
	// PhaseWiden to more clusters that have room.
	PhaseWiden Phase = "Widened"
	// PhaseHeal also nominates whatever was ever nominated, blind to fit: a copy
	// that was lost sight of may hold the very devices. It widens once more, too.
	PhaseHeal Phase = "Healed"
	// PhaseAll nominates every active cluster.
	PhaseAll Phase = "NominatedAll"
)

// Phase that the nomination is in, and when to look again.
func (d Dispatch) Phase(widen v1alpha1.Widen, now time.Time) (Phase, time.Duration) {
	after := Seconds(widen.AfterSeconds, DefaultWidenAfter)
	since := now.Sub(d.NominatedAt)
	switch {
	case since >= 4*after:
		return PhaseAll, 2 * after
	case since >= 2*after:
		return PhaseHeal, 4*after - since
	case since >= after:
		if again := now.Sub(d.WidenedAt); !d.WidenedAt.IsZero() && again < after {
			return PhaseWait, min(after-again, 2*after-since)
		}
		return PhaseWiden, 2*after - since
	}
	return PhaseWait, after - since
}

// Wider is the list to nominate in a phase: what is nominated stays (revoking a
// cluster that has admitted would be a livelock), and usable ones are added.
// order are the clusters with room, best first; usable all those that may be
// nominated at all.
func (d Dispatch) Wider(phase Phase, nominated, order, usable []string, widen v1alpha1.Widen) []string {
	add := []string{}
	switch phase {
	case PhaseWait:
	case PhaseWiden:
		add = more(nominated, order, widen.By)
	case PhaseHeal:
		add = d.Ever
		if d.WidenedAt.Before(d.NominatedAt.Add(2 * Seconds(widen.AfterSeconds, DefaultWidenAfter))) {
			add = union(add, more(nominated, order, widen.By))
		}
	case PhaseAll:
		add = union(d.Ever, usable)
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
func more(nominated, order []string, by *int32) []string {
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
	pause := firstPause
	for i := 1; i < yields && pause < lastPause; i++ {
		pause *= 2
	}
	return min(pause, lastPause)
}

// Unplaced is how long no cluster had room while the workload held quota. held is
// since when it holds it now.
func (d Dispatch) Unplaced(held, now time.Time) time.Duration {
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
func (d Dispatch) Counting(on bool, held, now time.Time) Dispatch {
	switch {
	case on && d.UnplacedSince.IsZero():
		d.UnplacedSince = now.UTC().Truncate(time.Millisecond)
	case !on && !d.UnplacedSince.IsZero():
		d.UnplacedSeconds, d.UnplacedSince = int64(d.Unplaced(held, now).Seconds()), time.Time{}
	}
	return d
}
