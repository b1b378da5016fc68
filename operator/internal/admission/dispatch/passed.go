package dispatch

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Passed is what a gate in mode Shadow would have done with a workload that it let pass.
type Passed struct {
	// QuotaReservedAt identifies the reservation of quota with which it passed.
	QuotaReservedAt time.Time `json:"quotaReservedAt"`
	// At is when the gate decided first.
	At time.Time `json:"at"`
	// Cluster to which the gate would have sent it, from ChosenAt on. Empty means that it would have waited until now.
	Cluster  string    `json:"cluster,omitempty"`
	ChosenAt time.Time `json:"chosenAt,omitzero"`
	// Devices of the workload, and of other components of its job that are placed with it.
	Devices int64 `json:"devices"`
	// Reason and Message of the decision by which it would have waited first.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Outcome once the workload has started. Empty means that it has not.
	Outcome v1alpha1.GateOutcome `json:"outcome,omitempty"`
}

// HasWaited reports whether the gate would have kept the workload waiting.
func (p Passed) HasWaited() bool { return p.Cluster == "" || p.ChosenAt.After(p.At) }

// WithPassed returns the record with what the gate would have done under a reservation of quota. The first call for
// the reservation begins the wait, and the first one with a cluster ends it.
func (r Record) WithPassed(cluster, reason, message string, devices int64, reserved, now time.Time) Record {
	p := Passed{QuotaReservedAt: timestamp(reserved), At: timestamp(now), Devices: devices}
	if old := r.PassedUnder(reserved); old != nil {
		p = *old
	}
	switch {
	case cluster != "" && p.Cluster == "":
		p.Cluster, p.ChosenAt = cluster, timestamp(now)
	case cluster == "" && p.Reason == "":
		p.Reason, p.Message = reason, message
	}
	r.Passed = &p
	return r
}

// isPlausible reports whether the operator may have written this: users may write the annotation.
func (p *Passed) isPlausible(now time.Time) bool {
	latest := now.Add(timing.MaxClockSkew)
	return !p.At.After(latest) && !p.ChosenAt.After(latest) && len(p.Cluster) <= 253 && len(p.Reason) <= 64 && p.Devices >= 0 && p.Devices <= maxCount
}

// PassedUnder is what the gate would have done under a reservation of quota; nil = it has not decided.
func (r Record) PassedUnder(reserved time.Time) *Passed {
	if r.Passed == nil || !r.Passed.QuotaReservedAt.Equal(timestamp(reserved)) {
		return nil
	}
	return r.Passed
}

// Settled returns the record with the outcome of the passage.
func (r Record) Settled(outcome v1alpha1.GateOutcome) Record {
	p := *r.Passed
	p.Outcome = outcome
	r.Passed = &p
	return r
}
