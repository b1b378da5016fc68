package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/test/story"
)

// Choice is a decision that sent a job to a cluster: in the record and by the operator in the world.
type Choice struct {
	Job     string
	Attempt int
	At      time.Duration
	// Want is the cluster of the record, Got that of the operator; empty = it did not decide.
	Want, Got string
	// Eligible is the number of clusters with room in the record.
	Eligible int
	// SameRoom: the operator had the same room for the job on each cluster as in the record.
	SameRoom bool
	// Why is what the operator says of a difference.
	Why string
}

// decision is a decision of the record.
type decision struct {
	at         time.Duration
	attempt    int
	made       gate.Decision
	candidates []gate.Candidate
	fleet      gate.Fleet
	// isRefused: its first write was refused, so that the operator decided again.
	isRefused bool
	// choice of a decision that sent a job; nil = it is another one.
	choice *Choice
}

// planDecisions schedules when the operator looks at a Workload.
func (p *Replay) planDecisions(j *replayed) {
	for i := range j.Decisions {
		r := &j.Decisions[i]
		d := p.decode(r)
		if n := len(j.decisions); n > 0 && j.decisions[n-1].made.State == gate.Ready && j.keepsQuota(j.decisions[n-1].at, d.at) {
			if j.decisions[n-1].attempt < d.attempt {
				continue // the annotation was written, and the nomination refused
			}
			j.decisions[n-1].isRefused = true
		}
		j.decisions, p.decisions[j.Devices] = append(j.decisions, d), append(p.decisions[j.Devices], d)
		p.at(d.at, func() { p.lookAt(j) })
	}
	for _, d := range j.decisions {
		// Kueue itself sends a later slice of a job to the cluster of the first one.
		if d.made.State == gate.Ready && !d.isRefused && j.Replaces == "" {
			d.choice = &Choice{Job: j.Job, Attempt: d.attempt, At: d.at, Want: d.made.Order[0], Eligible: len(d.made.Order)}
			p.Choices = append(p.Choices, d.choice)
		}
	}
}

// keepsQuota reports whether the Workload kept its quota between two times.
func (j *replayed) keepsQuota(from, to time.Duration) bool {
	reserved := 0.0
	for _, s := range j.States {
		switch at := seconds(s.At); {
		case at <= from:
			reserved = s.Reserved
		case at < to && s.Reserved != reserved && reserved > 0:
			return false
		}
	}
	return true
}

// decode translates a decision of the record to the times of the world.
func (p *Replay) decode(r *story.RecordedDecision) *decision {
	d := &decision{at: seconds(r.At), attempt: r.Attempt}
	err := errors.Join(json.Unmarshal(r.Decision, &d.made), json.Unmarshal(r.Candidates, &d.candidates), json.Unmarshal(r.Fleet, &d.fleet))
	if err != nil {
		panic(fmt.Sprintf("the record has a decision that the operator did not log: %v", err))
	}
	d.fleet.FailingSince = p.translate(d.fleet.FailingSince)
	for i := range d.candidates {
		c := &d.candidates[i]
		c.SampledAt, c.QuotaSampledAt = p.translate(c.SampledAt), p.translate(c.QuotaSampledAt)
		for key, s := range c.Scores {
			s.ValidUntil = p.translate(s.ValidUntil)
			c.Scores[key] = s
		}
	}
	return d
}

// translate returns the time in the world for one in the lab; zero = unknown.
func (p *Replay) translate(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return p.start.Add(t.Sub(p.record.Began))
}

// Decide decides by the metrics of the record. A workload that waits is decided at the times of the record: until
// the next of them, its last decision stays.
func (p *Replay) Decide(in *gate.Inputs, now time.Time) gate.Decision {
	j := p.byUID[in.Facts.UID]
	if wl := p.world.kueue.workloads.get(j.key); wl == nil || isReady(wl) {
		return p.inputs(in, latest(p.decisions[j.Devices], now.Sub(p.start))).Decide(now)
	}
	i := slices.IndexFunc(j.decisions, func(d *decision) bool { return d.at > now.Sub(p.start) })
	if i < 0 {
		i = len(j.decisions)
	}
	switch {
	case i > j.next:
		d := j.decisions[i-1]
		made := p.compare(d, p.inputs(in, d), now)
		j.next, j.last = i, &made
	case j.last == nil:
		j.last = &gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Message: "the record decides it later"}
	}
	if j.next > 0 && j.decisions[j.next-1].isRefused && j.last.State == gate.Ready {
		p.at(now.Sub(p.start), func() { p.lookAt(j) }) // the write comes too late
	}
	return *j.last
}

// latest is the last decision until a time; nil = none.
func latest(decisions []*decision, until time.Duration) *decision {
	for _, d := range slices.Backward(decisions) {
		if d.at <= until {
			return d
		}
	}
	return nil
}

// inputs are those of the operator, with the clusters and metrics of a decision of the record.
func (p *Replay) inputs(in *gate.Inputs, d *decision) *gate.Inputs {
	if d == nil {
		return in
	}
	with := *in
	with.Candidates, with.Fleet, with.Attempt = slices.Clone(d.candidates), d.fleet, d.attempt
	for i := range with.Candidates {
		c := &with.Candidates[i]
		c.Excluded, c.LastResort, c.Outside = nil, "", false
		for _, own := range in.Candidates {
			if own.Name == c.Name {
				c.Excluded, c.LastResort, c.Outside = own.Excluded, own.LastResort, own.Outside
			}
		}
	}
	return &with
}

// compare decides and compares that with the record. It returns the decision of the record, with all that it shares
// with that of the operator.
func (p *Replay) compare(d *decision, in *gate.Inputs, now time.Time) gate.Decision {
	own := in.Decide(now)
	if c := d.choice; c != nil {
		c.Got, c.SameRoom = first(own.Order), slices.EqualFunc(own.Verdicts, d.made.Verdicts, hasSameRoom)
		if c.Got != c.Want || !c.SameRoom {
			c.Why = d.difference(own, in, now)
		}
	}
	if d.made.State == gate.Ready {
		if first(own.Order) != first(d.made.Order) {
			own.State, own.Reason, own.Message, own.Order, own.Hold = gate.Ready, d.made.Reason, d.made.Message, d.made.Order, nil
		}
		return own
	}
	p.Waits++
	if len(own.Order) > 0 && !slices.ContainsFunc(d.made.Verdicts, isEligible) {
		p.Early++
	}
	if heldBy(own) != heldBy(d.made) {
		p.OtherHolds++
	}
	if own.State == gate.Ready {
		own.State, own.Reason, own.Message, own.Order = d.made.State, d.made.Reason, d.made.Message, nil
	}
	return own
}

func isEligible(v gate.Verdict) bool { return v.Rejection == gate.RejectNone }

func heldBy(d gate.Decision) string {
	if d.Hold == nil {
		return ""
	}
	return d.Hold.Cluster
}

func hasSameRoom(a, b gate.Verdict) bool {
	return a.Cluster == b.Cluster && a.Rejection == b.Rejection && a.Room == b.Room && a.Net == b.Net
}

func first(order []string) string {
	if len(order) == 0 {
		return ""
	}
	return order[0]
}

// difference states what the operator decides by in place of the record.
func (d *decision) difference(own gate.Decision, in *gate.Inputs, now time.Time) string {
	text := fmt.Sprintf("%s, attempt %d", own.Message, in.Attempt)
	for i, v := range own.Verdicts {
		at, was := in.Candidates[i].SampledAt, d.made.Verdicts[i]
		text += fmt.Sprintf("\n  %s, %.1f s old: %s room %v, net %v, score %v; in the record %s room %v, net %v; reserved", v.Cluster, now.Sub(at).Seconds(), v.Rejection, v.Room.Value, v.Net, v.Score.Value, was.Rejection, was.Room.Value, was.Net)
		for _, e := range in.View.Entries(v.Cluster, at) {
			text += fmt.Sprintf(" %d for %s,", e.Devices(), e.Workload)
		}
	}
	return text
}
