package lifecycle

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

// LateAdmission is an admission whose pods were not ready within timing.PodsReadyLimit. The
// cluster granted quota, but can't schedule or start the pods.
type LateAdmission struct{ Gate, Cluster string }

// WaitsForPods returns for how long the workload's pods have not been ready since a cluster
// admitted it. It returns false if the pods were ready once, or Kueue does not report PodsReady.
func (s *Situation) WaitsForPods() (time.Duration, bool) {
	if len(s.Checks.Own) == 0 || s.Checks.PlacedCluster(s.Workload) == "" || !kueuestate.AcceptsCheckUpdate(s.Workload) {
		return 0, false
	}
	c := apimeta.FindStatusCondition(s.Workload.Status.Conditions, kueue.WorkloadPodsReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != kueue.WorkloadWaitForStart {
		return 0, false
	}
	return s.Now.Sub(s.Checks.AdmittedAt(s.Workload, s.Now)), true
}

// stepIdle records that a cluster did not start the workload, and reports an admitted workload once if its pods do not
// become ready: the gate's work is done, but its decision may have been wrong. Kueue requeues
// such a workload if waitForPodsReady in its configuration says so.
func stepIdle(s *Situation) Step {
	next := Step{Writes: recordFailedStart(s)}
	waited, waits := s.WaitsForPods()
	switch {
	case !waits || s.History.PodsLate != nil:
	case waited < timing.PodsReadyLimit:
		next.RequeueAfter = timing.PodsReadyLimit - waited
	default:
		next.PodsLate = &LateAdmission{Gate: s.Gate.Name, Cluster: s.Checks.PlacedCluster(s.Workload)}
		next.Event = &Notice{Warning: true, Reason: "PodsNotReady", Message: gate.Truncate(fmt.Sprintf(
			"%s admitted it %s ago, but its pods are not ready; check there whether they can be scheduled", s.Checks.PlacedCluster(s.Workload), waited.Round(time.Second)))}
	}
	return next
}
