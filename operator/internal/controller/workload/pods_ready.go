package workload

import (
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// lateAdmission is an admission whose pods were not ready within timing.PodsReadyLimit. The
// cluster granted quota, but can't schedule or start the pods.
type lateAdmission struct{ gate, cluster string }

// waitsForPods returns for how long the workload's pods have not been ready since a cluster
// admitted it. It returns false if the pods were ready once, or Kueue does not report PodsReady.
func (o *observation) waitsForPods() (time.Duration, bool) {
	if len(o.checks) == 0 || o.placedOn() == "" || !kueuestate.AcceptsCheckUpdate(o.wl) {
		return 0, false
	}
	c := apimeta.FindStatusCondition(o.wl.Status.Conditions, kueue.WorkloadPodsReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != kueue.WorkloadWaitForStart {
		return 0, false
	}
	return o.now.Sub(o.admittedAt(o.now)), true
}

// stepIdle reports an admitted workload once if its pods do not
// become ready: the gate's work is done, but its decision may have been wrong. Kueue requeues
// such a workload if waitForPodsReady in its configuration says so.
func (o *observation) stepIdle() step {
	s := step{}
	waited, waits := o.waitsForPods()
	switch {
	case !waits || o.history.podsLate != nil:
	case waited < timing.PodsReadyLimit:
		s.requeueAfter = timing.PodsReadyLimit - waited
	default:
		s.podsLate = &lateAdmission{gate: o.gateName, cluster: o.placedOn()}
		s.event = &notice{warning: true, reason: "PodsNotReady", message: gate.Truncate(fmt.Sprintf(
			"%s admitted it %s ago, but its pods are not ready; check there whether they can be scheduled", o.placedOn(), waited.Round(time.Second)))}
	}
	return s
}

// countLateAdmissions counts the late admissions of all workloads.
func (h *histories) countLateAdmissions() map[lateAdmission]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[lateAdmission]int{}
	for _, one := range h.byUID {
		if one.podsLate != nil {
			counts[*one.podsLate]++
		}
	}
	return counts
}
