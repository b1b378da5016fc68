//go:build integration

package workload_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
)

func TestYieldsOnlyToPendingWorkloadOfCohort(t *testing.T) {
	for _, tc := range []struct{ name, gate, cohort string }{
		{"same ClusterQueue", "yield", ""},
		{"other ClusterQueue of the cohort", "yield-cohort", "shared"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			tg := newTestGate(t, tc.gate, func(pg *v1alpha1.PlacementGate) {
				pg.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 1}
			})
			tg.connect(tc.gate+"-1", tc.gate+"-2")
			fleet.reset(map[string]*clusterMetrics{tc.gate + "-1": {0, 4, 4, 64}, tc.gate + "-2": {0, 6, 6, 64}})
			tg.workload.clusterQueue = tc.gate
			tg.createQueue("gpu", tc.gate, tc.cohort)
			pendingQueue := "gpu"
			if tc.cohort != "" {
				tg.createQueue("neighbor", "neighbor", tc.cohort)
				pendingQueue = "neighbor"
			}
			tg.createQueue("unrelated", tc.gate+"-unrelated", "")
			tg.createPendingWorkload("unrelated", "unrelated")
			wl := tg.submitGated("big", 1)
			g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Pending: " + noNodeLargeEnough))
			g.Consistently(checkState(t, wl, tg.gateCheck())).WithTimeout(3*time.Second).Should(HavePrefix("Pending"), "no other workload waits for this quota")
			tg.createPendingWorkload("small", pendingQueue)
			g.Eventually(isActive(t, wl)).Should(HaveValue(BeFalse()), "an inactive workload lets Kueue admit the others")
			g.Expect(dispatchRecord(t, wl)()).To(And(HaveField("Yields", 1), HaveField("SleepsUntil", Not(BeZero()))),
				"the time of activation must survive a change of the leader")
		})
	}
}

func TestGivesUpAfterConfiguredTime(t *testing.T) {
	g := NewWithT(t)
	after := int32(2)
	tg := newTestGate(t, "giveup", func(pg *v1alpha1.PlacementGate) { pg.Spec.WhenUnplaceable.GiveUpAfterSeconds = &after })
	tg.connect("giveup-1", "giveup-2")
	fleet.reset(map[string]*clusterMetrics{"giveup-1": {0, 4, 4, 64}, "giveup-2": {0, 6, 6, 64}})
	wl := tg.submitGated("big", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Rejected: " + gaveUp + noNodeLargeEnough))
}

// Kueue adds the checks long before quota is reserved. Time without quota does not count as
// time without room.
func TestQueueingForQuotaDoesNotCountAsWaiting(t *testing.T) {
	g := NewWithT(t)
	hour := int32(3600)
	tg := newTestGate(t, "queued", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, GiveUpAfterSeconds: &hour}
	})
	tg.connect("queued-1", "queued-2")
	fleet.reset(map[string]*clusterMetrics{"queued-1": {0, 4, 4, 64}, "queued-2": {0, 6, 6, 64}})
	tg.workload.clusterQueue, tg.workload.checksAge = "queued", 2*time.Hour
	tg.createQueue("gpu", "queued", "")
	tg.createPendingWorkload("small", "gpu")
	wl := tg.submitGated("big", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(ContainSubstring(noNodeLargeEnough))
	g.Consistently(checkState(t, wl, tg.gateCheck())).WithTimeout(3*time.Second).Should(HavePrefix("Pending: no cluster"), "the workload must not be given up")
	g.Expect(isActive(t, wl)()).To(HaveValue(BeTrue()), "the workload must not yield")
}

func TestActivationByUserEndsYield(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "activated", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 1}
	})
	tg.connect("activated-1", "activated-2")
	fleet.reset(map[string]*clusterMetrics{"activated-1": {0, 4, 4, 64}, "activated-2": {0, 6, 6, 64}})
	tg.workload.clusterQueue = "activated"
	tg.createQueue("gpu", "activated", "")
	tg.createPendingWorkload("small", "gpu")
	wl := tg.submitGated("big", 1)
	g.Eventually(dispatchRecord(t, wl)).ShouldNot(HaveField("SleepsUntil", BeZero()))
	tg.patch(wl, `{"spec":{"active":true}}`)
	g.Eventually(dispatchRecord(t, wl)).WithTimeout(10*time.Second).Should(And(HaveField("SleepsUntil", BeZero()), HaveField("Yields", 1)),
		"otherwise the gate would revert a later deactivation by the user")
	g.Expect(isActive(t, wl)()).To(HaveValue(BeTrue()))
}

// The annotation records the time without room for the next leader. The clock stops while the
// metrics source or the gate fails.
func TestTimeWithoutRoomIsRecorded(t *testing.T) {
	g := NewWithT(t)
	hour := int32(3600)
	tg := newTestGate(t, "clock", func(pg *v1alpha1.PlacementGate) { pg.Spec.WhenUnplaceable.GiveUpAfterSeconds = &hour })
	tg.connect("clock-1", "clock-2")
	fleet.reset(map[string]*clusterMetrics{"clock-1": {0, 4, 4, 64}, "clock-2": {0, 6, 6, 64}})
	wl := tg.submitGated("big", 1)
	isRunning, isStopped := HaveField("UnplacedSince", Not(BeZero())), HaveField("UnplacedSince", BeZero())
	g.Eventually(dispatchRecord(t, wl)).Should(isRunning)
	fleet.update(func(p *fakePrometheus) { p.err = errors.New("connection refused") })
	g.Eventually(dispatchRecord(t, wl)).Should(isStopped)
	fleet.update(func(p *fakePrometheus) { p.err = nil })
	g.Eventually(dispatchRecord(t, wl)).Should(isRunning)
	g.Eventually(checkState(t, wl, tg.gateCheck())).ShouldNot(ContainSubstring("refused"))
	version := resourceVersion(t, wl)()
	g.Consistently(resourceVersion(t, wl)).WithTimeout(3*time.Second).Should(Equal(version), "the record is written when the clock starts, not in each round")
	tg.deleteGate()
	g.Eventually(dispatchRecord(t, wl)).Should(isStopped)
	g.Expect(checkState(t, wl, tg.gateCheck())()).To(HavePrefix("Pending: "))
}

// Without MultiKueue no nomination follows the Ready check, so the check itself ends the time
// without room.
func TestReadyCheckEndsTimeWithoutRoomWithoutMultiKueue(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "single", func(pg *v1alpha1.PlacementGate) { pg.Spec.MultiKueue = nil })
	fleet.reset(map[string]*clusterMetrics{"single-1": {1, 8, 8, 64}, "single-2": {0, 0, 0, 64}})
	tg.workload.annotations = map[string]string{v1alpha1.DispatchAnnotation: dispatch.Record{UnplacedSeconds: 100, Yields: 2}.Encode()}
	wl := tg.submit("job", 1, tg.gateCheck())
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Ready: single-1"))
	g.Expect(dispatchRecord(t, wl)()).To(And(HaveField("Yields", 0), HaveField("UnplacedSeconds", BeZero())))
}
