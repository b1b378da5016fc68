// Package shadow compares what gates in mode Shadow would have done with what happened.
package shadow

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Passage is one time that a gate in mode Shadow let a workload pass: what it would have done, and what happened.
type Passage struct {
	UID, Workload, Gate string
	Would               dispatch.Passed
	// Went is the cluster that admitted the workload; empty = none yet, or the hub does not show it. AdmittedAt is when.
	Went       string
	AdmittedAt time.Time
	// ReportsPodsReady: Kueue says whether its pods are ready.
	ReportsPodsReady bool
	// StartedAt is when its pods were ready there; zero = not yet.
	StartedAt time.Time
	// EndedAt is when it finished, lost its quota or was deleted before its pods were ready; zero = it did not.
	EndedAt time.Time
}

// undecided are the reasons for which a gate can't decide. With metrics, it might have sent the workload somewhere.
var undecided = map[string]bool{gate.ReasonGateNotReady: true, gate.ReasonNoMetrics: true, gate.ReasonStale: true}

// Settle is what the gate would have done, as far as it is known.
func (p Passage) Settle() v1alpha1.GateOutcome {
	switch {
	case p.Would.Cluster == "" && p.Would.Reason == gate.ReasonNever:
		return v1alpha1.OutcomeNever
	case p.Would.Cluster == "" && undecided[p.Would.Reason]:
		return v1alpha1.OutcomeUndecided
	case p.Would.HasWaited():
		return v1alpha1.OutcomeWait
	case p.Went == "":
		return v1alpha1.OutcomeUnplaced
	case p.Went == p.Would.Cluster:
		return v1alpha1.OutcomeSameCluster
	}
	return v1alpha1.OutcomeOtherCluster
}

// end is when the workload started or ended, or else now.
func (p Passage) end(now time.Time) time.Time {
	for _, at := range []time.Time{p.StartedAt, p.EndedAt} {
		if !at.IsZero() {
			return at
		}
	}
	return now
}

// waited is for how long the gate would have kept the workload waiting. A start elsewhere ends the wait, too: the
// cluster had room then.
func (p Passage) waited(now time.Time) time.Duration {
	if !p.Would.HasWaited() {
		return 0
	}
	end := p.end(now)
	if p.Would.Cluster != "" && p.Would.ChosenAt.Before(end) {
		end = p.Would.ChosenAt
	}
	return max(0, end.Sub(p.Would.At))
}

// hung is how long the pods were not ready after the admission, if that was timing.HangsAfter or longer.
func (p Passage) hung(now time.Time) time.Duration {
	if p.AdmittedAt.IsZero() || !p.ReportsPodsReady {
		return 0
	}
	if took := p.end(now).Sub(p.AdmittedAt); took >= timing.HangsAfter {
		return took
	}
	return 0
}

// maxMessage bounds the messages of a report, in bytes.
const maxMessage = 200

// row of a report.
func (p Passage) row(now time.Time) v1alpha1.ShadowWorkload {
	message := p.Would.Message
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
	}
	return v1alpha1.ShadowWorkload{Workload: p.Workload, Time: metav1.NewTime(p.Would.At).Rfc3339Copy(), Devices: p.Would.Devices, Outcome: p.Settle(), Would: p.Would.Cluster,
		Message: message, Cluster: p.Went, WaitSeconds: int64(p.waited(now).Seconds()), HungSeconds: int64(p.hung(now).Seconds())}
}
