//go:build integration

package workload_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
)

func TestWidensToNextCluster(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "wide", func(pg *v1alpha1.PlacementGate) { pg.Spec.Advanced.WidenAfterSeconds = 2 })
	tg.connect("wide-1", "wide-2")
	fleet.reset(map[string]*clusterMetrics{"wide-1": {2, 16, 8, 64}, "wide-2": {1, 8, 8, 64}})
	wl := tg.submitGated("slow", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"wide-1"}))
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"wide-1", "wide-2"}))
}

func TestWidensToClustersWithRoom(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "byroom", func(pg *v1alpha1.PlacementGate) { pg.Spec.Advanced.WidenAfterSeconds = 2 })
	tg.setDecisions("byroom-1", "byroom-2", "byroom-3", "byroom-4")
	tg.connect("byroom-1", "byroom-2", "byroom-3", "byroom-4")
	fleet.reset(map[string]*clusterMetrics{"byroom-1": {4, 32, 8, 64}, "byroom-2": {3, 24, 8, 64}, "byroom-3": {2, 16, 8, 64}, "byroom-4": {0, 0, 0, 64}})
	wl := tg.submitGated("slow", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(HaveLen(1))
	g.Eventually(nominatedClusters(t, wl)).Should(HaveLen(3))
	g.Expect(nominatedClusters(t, wl)()).To(ConsistOf("byroom-1", "byroom-2", "byroom-3"))
	g.Consistently(nominatedClusters(t, wl)).WithTimeout(5*time.Second).Should(HaveLen(3), "a full cluster is never nominated")
}

// If Kueue uses its default dispatcher, it nominates every cluster at once.
func TestReportsConflictingDispatcher(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "conflict", func(pg *v1alpha1.PlacementGate) { pg.Spec.Advanced.WidenAfterSeconds = 1 })
	tg.connect("conflict-1", "conflict-2")
	fleet.reset(map[string]*clusterMetrics{"conflict-1": {1, 8, 8, 64}, "conflict-2": {0, 0, 0, 64}})
	g.Eventually(gateCondition(t, "conflict", v1alpha1.ConditionDispatcherMatches)).Should(HavePrefix("True OnlyDispatcher"))
	wl := tg.submitGated("job", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"conflict-1"}))
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) { s.NominatedClusterNames = []string{"conflict-1", "conflict-2"} })
	g.Eventually(gateCondition(t, "conflict", v1alpha1.ConditionDispatcherMatches)).WithTimeout(2 * waitTimeout).Should(
		HavePrefix("False AnotherDispatcher: conflict/job was nominated to conflict-2 by another dispatcher; set multiKueue.dispatcherName to plimsoll.dev/dispatcher"))
	version := resourceVersion(t, wl)()
	g.Consistently(resourceVersion(t, wl)).WithTimeout(2*time.Second).Should(Equal(version), "two dispatchers must not overwrite each other in turn")
	g.Expect(nominatedClusters(t, wl)()).To(Equal([]string{"conflict-1", "conflict-2"}))
}

// halfAMinuteAgo is a time as the API server stores it.
func halfAMinuteAgo() time.Time { return time.Now().Add(-30 * time.Second).Truncate(time.Second) }

// readyCheck returns a status change that reserves quota at a time and sets the gate's check
// Ready 20 s ago, with these nominations.
func readyCheck(reserved time.Time, nominated ...string) func(*kueue.WorkloadStatus) {
	return func(s *kueue.WorkloadStatus) {
		s.NominatedClusterNames = nominated
		s.AdmissionChecks[0].State, s.AdmissionChecks[0].LastTransitionTime = kueue.CheckStateReady, metav1.NewTime(time.Now().Add(-20*time.Second))
		s.Conditions[0].LastTransitionTime = metav1.NewTime(reserved)
	}
}

// The annotation is written before the nomination. If the operator stops in between, the next
// leader nominates the recorded clusters, although another cluster has more room.
func TestNominatesRecordedClustersAfterRestart(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "halfway", nil)
	tg.connect("halfway-1", "halfway-2")
	fleet.reset(map[string]*clusterMetrics{"halfway-1": {9, 72, 8, 72}, "halfway-2": {1, 8, 8, 8}})
	tg.waitUntilConnected()
	reserved := halfAMinuteAgo()
	tg.workload.annotations = map[string]string{
		v1alpha1.DispatchAnnotation: dispatch.Record{}.Begin([]string{"halfway-2"}, reserved, "room", time.Now().Add(-15*time.Second)).Encode()}
	tg.workload.changeStatus = readyCheck(reserved)
	wl := tg.submitGated("job", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"halfway-2"}))
	g.Expect(ledgerEntries(t, wl, "halfway-2")()).To(HaveLen(1))
	g.Consistently(gateCondition(t, "halfway", v1alpha1.ConditionDispatcherMatches)).WithTimeout(2 * time.Second).Should(HavePrefix("True"))
}

// Another dispatcher may have nominated clusters before the operator became Kueue's dispatcher.
// These clusters may never admit the workload, so the gate adopts the nomination and widens it.
func TestAdoptsAndWidensForeignNomination(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "adopt", func(pg *v1alpha1.PlacementGate) { pg.Spec.Advanced.WidenAfterSeconds = 2 })
	tg.connect("adopt-1", "adopt-2")
	fleet.reset(map[string]*clusterMetrics{"adopt-1": {1, 8, 8, 64}, "adopt-2": {1, 8, 8, 64}})
	tg.waitUntilConnected()
	tg.workload.changeStatus = readyCheck(halfAMinuteAgo(), "adopt-1")
	wl := tg.submitGated("job", 1)
	g.Eventually(ledgerEntries(t, wl, "adopt-1")).Should(HaveLen(1))
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"adopt-1", "adopt-2"}))
	g.Expect(dispatchRecord(t, wl)()).To(And(HaveField("Attempt", 1), WithTransform(dispatch.Record.Sent, ConsistOf("adopt-1", "adopt-2"))))
	g.Expect(ledgerEntries(t, wl, "adopt-2")()).To(HaveLen(1))
}

// The check and the nomination of an eviction repair remain after the eviction. If the check is
// Ready, MultiKueue would send the workload to a cluster that may have no room, so the workload
// returns to its queue. If the check is Pending, the gate decides again and keeps the nomination,
// because another cluster would mean a second copy.
func TestNominationFromBeforeEviction(t *testing.T) {
	tg := newTestGate(t, "outlive", nil)
	tg.connect("outlive-1", "outlive-2")
	fleet.reset(map[string]*clusterMetrics{"outlive-1": {9, 72, 8, 72}, "outlive-2": {2, 16, 8, 16}})
	tg.waitUntilConnected()
	reserved := halfAMinuteAgo()
	tg.workload.annotations = map[string]string{
		v1alpha1.DispatchAnnotation: dispatch.Record{}.BeginRepair([]string{"outlive-2"}, reserved.Add(-time.Minute), "repair", reserved.Add(-30*time.Second)).Encode()}
	t.Run("check Ready", func(t *testing.T) {
		g := NewWithT(t)
		tg.workload.changeStatus = readyCheck(reserved, "outlive-2")
		wl := tg.submitGated("ready", 1)
		g.Eventually(dispatchRecord(t, wl)).Should(And(HaveField("Reason", "EvictionRepaired"), HaveField("Attempt", 1)))
		g.Expect(ledgerEntries(t, wl, "outlive-1")()).To(BeEmpty())
	})
	t.Run("check Pending", func(t *testing.T) {
		g := NewWithT(t)
		tg.workload.changeStatus = func(s *kueue.WorkloadStatus) {
			readyCheck(reserved, "outlive-2")(s)
			s.AdmissionChecks[0].State = kueue.CheckStatePending
		}
		wl := tg.submitGated("reset", 1)
		g.Eventually(dispatchRecord(t, wl)).Should(HaveField("Attempt", 2))
		g.Eventually(ledgerEntries(t, wl, "outlive-2")).Should(HaveLen(1))
		g.Expect(nominatedClusters(t, wl)()).To(Equal([]string{"outlive-2"}))
	})
}

// The nomination of an eviction repair remains after the eviction. It therefore prefers a
// cluster with room. If no cluster has room, it names the former cluster, because the release
// of the quota must not depend on room.
func TestRepairsStuckEviction(t *testing.T) {
	for _, tc := range []struct {
		name, gate   string
		otherCluster clusterMetrics
		want         string
	}{
		{"no cluster has room", "stuck", clusterMetrics{0, 0, 0, 64}, "stuck-1"},
		{"another cluster has room", "moved", clusterMetrics{1, 8, 8, 64}, "moved-2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			tg := newTestGate(t, tc.gate, nil)
			tg.connect(tc.gate+"-1", tc.gate+"-2")
			fleet.reset(map[string]*clusterMetrics{tc.gate + "-1": {1, 8, 8, 64}, tc.gate + "-2": {0, 0, 0, 64}})
			wl := tg.submitGated("lost", 1)
			g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{tc.gate + "-1"}))
			fleet.reset(map[string]*clusterMetrics{tc.gate + "-1": {0, 0, 0, 64}, tc.gate + "-2": &tc.otherCluster})
			tg.evict(wl)
			g.Consistently(nominatedClusters(t, wl)).WithTimeout(3*time.Second).Should(BeEmpty(), "Kueue gets time to complete the eviction")
			g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{tc.want}))
			g.Expect(checkState(t, wl, tg.gateCheck())()).To(HavePrefix("Ready: "))
		})
	}
}

// The cluster that a repair nominates may not admit the workload: it has no quota, has no such
// queue, or is gone. The quota of the hub must not depend on that cluster.
func TestWidensEvictionRepair(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "repair", func(pg *v1alpha1.PlacementGate) { pg.Spec.Advanced.WidenAfterSeconds = 1 })
	tg.connect("repair-1", "repair-2")
	fleet.reset(map[string]*clusterMetrics{"repair-1": {1, 8, 8, 64}, "repair-2": {0, 0, 0, 64}})
	wl := tg.submitGated("lost", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"repair-1"}))
	tg.evict(wl)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"repair-1"}))
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"repair-1", "repair-2"}), "finally every connected cluster is nominated")
}

func TestNominatesAllClustersForUngatedWorkload(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "ungated", nil)
	tg.connect("ungated-1", "ungated-2")
	wl := tg.submit("job", 1, tg.multiKueueCheck())
	g.Eventually(nominatedClusters(t, wl)).Should(ConsistOf("ungated-1", "ungated-2"))
}

// An eviction clears the nominations. The record in the annotation must remain.
func TestRecordSurvivesEviction(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "again", nil)
	tg.connect("again-1", "again-2")
	fleet.reset(map[string]*clusterMetrics{"again-1": {1, 8, 8, 64}, "again-2": {0, 0, 0, 64}})
	wl := tg.submitGated("job", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"again-1"}))
	for _, quotaReserved := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} {
		tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
			s.NominatedClusterNames = nil
			apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: quotaReserved, Reason: "Test"})
			resetChecks(s)
		})
	}
	g.Eventually(dispatchRecord(t, wl)).Should(And(HaveField("Attempt", 2), WithTransform(dispatch.Record.Sent, ContainElement("again-1"))))
}
