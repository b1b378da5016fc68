//go:build integration

package workload_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestInvalidQueryBlocksGate(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "invalid", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Requirements = []v1alpha1.GateRequirement{{Name: "power", Query: "sum by (cluster) (power{model=\"$model\"}"}}
	})
	g.Eventually(checkActive(t, "invalid")).Should(Equal("False InvalidQuery: " + unclosedParen))
	g.Expect(gateCondition(t, "invalid", v1alpha1.ConditionQueriesValid)()).To(Equal(checkActive(t, "invalid")()))
	wl := tg.submitGated("job", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Pending: " + gateNotReady("invalid", unclosedParen)))
}

func TestPlacementWithoutDecisions(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "empty", nil)
	tg.setDecisions()
	g.Eventually(gateCondition(t, "empty", v1alpha1.ConditionReady)).Should(HavePrefix("False NoDecisions: "))
	g.Eventually(checkActive(t, "empty")).Should(HavePrefix("True Active"), "workloads wait; the queue stays active")
	wl := tg.submitGated("job", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Pending: Placement empty/gpu has decided no cluster"))
}

func TestTwoGatesWithOneMultiKueueConfig(t *testing.T) {
	g := NewWithT(t)
	newTestGate(t, "first", nil)
	g.Eventually(gateCondition(t, "first", v1alpha1.ConditionConfigured)).Should(HavePrefix("True Written"))
	second := newTestGate(t, "second", func(pg *v1alpha1.PlacementGate) { pg.Spec.MultiKueue.ConfigName = "first" })
	second.setMultiKueueConfig("first")
	notOurs := Equal("False NotOurs: " + configOwned("first", "first", "second"))
	g.Eventually(gateCondition(t, "second", v1alpha1.ConditionConfigured)).Should(notOurs)
	g.Expect(gateCondition(t, "second", v1alpha1.ConditionReady)()).To(notOurs)
	g.Eventually(checkActive(t, "second")).Should(notOurs)
	wl := second.submitGated("job", 1)
	g.Eventually(checkState(t, wl, second.gateCheck())).Should(Equal("Pending: " + gateNotReady("second", configOwned("first", "first", "second"))))
	g.Expect(nominatedClusters(t, wl)()).To(BeEmpty())
	g.Expect(configClusters(t, "first")()).To(Equal([]string{"first-1", "first-2"}))
}

func TestTwoGateChecksOnOneQueue(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "twice", nil)
	tg.connect("twice-1", "twice-2")
	fleet.reset(map[string]*clusterMetrics{"twice-1": {1, 8, 8, 64}, "twice-2": {1, 8, 8, 64}})
	tg.createGateCheck("twice-again")
	wl := tg.submit("job", 1, tg.gateCheck(), "twice-again", tg.multiKueueCheck())
	for _, name := range []string{tg.gateCheck(), "twice-again"} {
		g.Eventually(checkState(t, wl, name)).Should(Equal("Pending: " + tooManyChecks("twice-again", "twice-plimsoll")))
	}
	g.Expect(nominatedClusters(t, wl)()).To(BeEmpty())
}

// Kueue adds a check that is new on the queue also to workloads that hold quota.
func TestSecondGateCheckOnReadyWorkload(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "later", nil)
	tg.connect("later-1", "later-2")
	fleet.reset(map[string]*clusterMetrics{"later-1": {1, 8, 8, 64}, "later-2": {0, 0, 0, 64}})
	tg.createGateCheck("later-again")
	wl := tg.submitGated("job", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"later-1"}))
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		s.AdmissionChecks = append(s.AdmissionChecks, kueue.AdmissionCheckState{Name: "later-again", State: kueue.CheckStatePending, LastTransitionTime: metav1.Now()})
	})
	g.Eventually(checkState(t, wl, "later-again")).Should(Equal("Pending: " + tooManyChecks("later-again", "later-plimsoll")))
	g.Expect(checkState(t, wl, tg.gateCheck())()).To(HavePrefix("Ready: " + hasRoom("later-1", 1)))
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) { s.AdmissionChecks = s.AdmissionChecks[:2] })
	g.Expect(nominatedClusters(t, wl)()).To(Equal([]string{"later-1"}), "the nomination remains after the second check is removed")
}

func TestMultiKueueCheckWithOtherConfig(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "apart", nil)
	tg.connect("apart-1", "apart-2")
	fleet.reset(map[string]*clusterMetrics{"apart-1": {1, 8, 8, 64}, "apart-2": {1, 8, 8, 64}})
	tg.create(&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"apart-1"}}})
	tg.setMultiKueueConfig("elsewhere")
	wl := tg.submitGated("job", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Pending: " + gateNotReady("apart",
		"admission check apart-multikueue uses MultiKueueConfig elsewhere but the gate maintains apart; name the same in both")))
	g.Expect(nominatedClusters(t, wl)()).To(BeEmpty())
	tg.setMultiKueueConfig("apart")
	g.Eventually(nominatedClusters(t, wl)).Should(HaveLen(1), "the gate continues after the configuration is repaired")
}

// Nothing else wakes a workload whose check names no gate.
func TestCorrectedParametersOfACheck(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "typo", nil)
	tg.connect("typo-1", "typo-2")
	fleet.reset(map[string]*clusterMetrics{"typo-1": {1, 8, 8, 64}, "typo-2": {0, 0, 0, 64}})
	setKind := func(kind string) {
		tg.retry(func() error {
			check := &kueue.AdmissionCheck{}
			if err := apiClient.Get(t.Context(), client.ObjectKey{Name: tg.gateCheck()}, check); err != nil {
				return err
			}
			check.Spec.Parameters.Kind = kind
			return apiClient.Update(t.Context(), check)
		})
	}
	setKind("Gate")
	g.Eventually(checkActive(t, "typo")).Should(HavePrefix("False "))
	wl := tg.submitGated("job", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Pending: AdmissionCheck typo-plimsoll names no PlacementGate: correct its spec.parameters"))
	setKind("PlacementGate")
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"typo-1"}))
}

func TestLostMultiKueueConfigKeepsNominations(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "lost", func(pg *v1alpha1.PlacementGate) { pg.Spec.Advanced.WidenAfterSeconds = 1 })
	tg.connect("lost-1", "lost-2")
	fleet.reset(map[string]*clusterMetrics{"lost-1": {4, 32, 8, 64}, "lost-2": {0, 0, 0, 64}})
	nominated := tg.submitGated("nominated", 1)
	g.Eventually(nominatedClusters(t, nominated)).Should(Equal([]string{"lost-1"}))
	tg.setConfigOwner("another")
	g.Eventually(checkActive(t, "lost")).Should(Equal("False NotOurs: " + configOwned("lost", "another", "lost")))
	waiting := tg.submitGated("waiting", 1)
	g.Eventually(checkState(t, waiting, tg.gateCheck())).Should(Equal("Pending: " + gateNotReady("lost", configOwned("lost", "another", "lost"))))
	g.Consistently(func(g Gomega) {
		g.Expect(nominatedClusters(t, nominated)()).To(ContainElement("lost-1"))
		g.Expect(checkState(t, nominated, tg.gateCheck())()).To(HavePrefix("Ready: lost-1 has room"))
		g.Expect(nominatedClusters(t, waiting)()).To(BeEmpty())
	}).WithTimeout(5 * time.Second).Should(Succeed())
	tg.setConfigOwner("lost")
	g.Eventually(nominatedClusters(t, waiting)).Should(Equal([]string{"lost-1"}), "the gate continues after the configuration is repaired")
	g.Eventually(checkActive(t, "lost")).Should(HavePrefix("True Active"))
}

func TestDisconnectedCluster(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "disconnected", nil)
	tg.connect("disconnected-1", "disconnected-2")
	fleet.reset(map[string]*clusterMetrics{"disconnected-1": {4, 32, 8, 64}, "disconnected-2": {1, 8, 8, 64}})
	running := tg.submitGated("running", 4)
	g.Eventually(nominatedClusters(t, running)).Should(Equal([]string{"disconnected-1"}))
	cluster := "disconnected-1"
	tg.updateStatus(running, func(s *kueue.WorkloadStatus) { s.ClusterName, s.NominatedClusterNames = &cluster, nil })
	tg.disconnect("disconnected-1")

	big := tg.submitGated("big", 4)
	g.Eventually(checkState(t, big, tg.gateCheck())).Should(And(HavePrefix("Pending: "), ContainSubstring("Unauthorized")))
	small := tg.submitGated("small", 1)
	g.Eventually(nominatedClusters(t, small)).Should(Equal([]string{"disconnected-2"}))
	g.Expect(getWorkload(t, running).Status.ClusterName).To(HaveValue(Equal("disconnected-1")), "a running job is not moved")
	g.Expect(configClusters(t, "disconnected")()).To(ConsistOf("disconnected-1", "disconnected-2"),
		"removing the cluster would evict its jobs")

	fleet.reset(map[string]*clusterMetrics{"disconnected-1": {8, 64, 8, 64}, "disconnected-2": {0, 0, 0, 64}})
	tg.connect("disconnected-1")
	g.Eventually(nominatedClusters(t, big)).Should(Equal([]string{"disconnected-1"}), "the gate continues after the cluster is connected again")
}

// A workload that waits for a deleted gate counts in the metrics, so that an alert can fire.
func TestWaitingForDeletedGateIsCounted(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "deleted", nil)
	tg.deleteGate()
	wl := tg.submitGated("job", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Pending: " + gateMissing("deleted")))
	// The operator may observe the workload before it observes the deletion of the gate.
	g.Eventually(eventsOf(t, wl)).Should(ContainElement("GateNotReady: " + gateMissing("deleted")))
	waiting := metricSum(g, metricsRegistry, "plimsoll_gate_waiting_workloads", "deleted")
	g.Eventually(waiting).Should(BeEquivalentTo(1))
	g.Expect(apiClient.Delete(t.Context(), wl)).To(Succeed())
	g.Eventually(waiting).Should(BeZero())
}

func TestUnreadableRecordIsReset(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "broken", nil)
	tg.connect("broken-1", "broken-2")
	fleet.reset(map[string]*clusterMetrics{"broken-1": {1, 8, 8, 64}, "broken-2": {0, 0, 0, 64}})
	nominated, waiting := tg.submitGated("nominated", 1), tg.submitGated("waiting", 2)
	g.Eventually(nominatedClusters(t, nominated)).Should(Equal([]string{"broken-1"}))
	g.Eventually(checkState(t, waiting, tg.gateCheck())).Should(HavePrefix("Pending: " + noRoomFor2Pods))
	for _, wl := range []*kueue.Workload{nominated, waiting} {
		tg.patch(wl, `{"metadata":{"annotations":{"`+v1alpha1.DispatchAnnotation+`":"{"}}}`)
		g.Eventually(dispatchRecord(t, wl)).Should(HaveField("Nominated", Equal(nominatedClusters(t, wl)())), "the new record contains the present nominations")
		g.Eventually(eventsOf(t, wl)).Should(ContainElement(HavePrefix("BadAnnotation: annotation " + v1alpha1.DispatchAnnotation)))
	}
	events := 0
	for _, e := range eventsOf(t, waiting)() {
		if strings.HasPrefix(e, "BadAnnotation") {
			events++
		}
	}
	g.Expect(events).To(Equal(1))
	g.Consistently(gateCondition(t, "broken", v1alpha1.ConditionDispatcherMatches)).WithTimeout(2*time.Second).ShouldNot(
		HavePrefix("False"), "a lost record is no evidence of another dispatcher")
}
