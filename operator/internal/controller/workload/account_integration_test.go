//go:build integration

package workload_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
)

// Kueue reserves quota again within a fraction of a second after an eviction. The operator may
// then see both as one change.
func TestEvictionAndNewQuotaInOneChange(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "atonce", nil)
	tg.connect("atonce-1", "atonce-2")
	fleet.reset(map[string]*clusterMetrics{"atonce-1": {9, 72, 8, 72}, "atonce-2": {0, 0, 0, 64}})
	fleet.update(func(p *fakePrometheus) { p.sampledAt = time.Now() }) // no later sample shows the admission
	tg.workload.changeStatus = func(s *kueue.WorkloadStatus) {
		s.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Minute))
	}
	wl := tg.submitGated("job", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"atonce-1"}))
	cluster := "atonce-1"
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		s.NominatedClusterNames, s.ClusterName = nil, &cluster
		s.AdmissionChecks[1].State, s.AdmissionChecks[1].LastTransitionTime = kueue.CheckStateReady, metav1.Now()
	})
	isAdmitted := HaveField("AdmittedAt", Not(BeZero()))
	g.Eventually(ledgerEntries(t, wl, cluster)).Should(ConsistOf(isAdmitted))
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		s.ClusterName = nil
		resetChecks(s)
		apimeta.FindStatusCondition(s.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime = metav1.Now()
	})
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"atonce-1"}))
	g.Expect(ledgerEntries(t, wl, cluster)()).To(ConsistOf(Not(isAdmitted)), "the new attempt is not admitted yet")
}

// A restarted operator rebuilds the ledger and does not count an admission again.
func TestRestartKeepsLedgerAndCountsOnce(t *testing.T) {
	g := NewWithT(t)
	cfg := startAPIServer(t)
	before, after := prometheus.NewRegistry(), prometheus.NewRegistry()
	stop := startOperator(t, cfg, workload.Options{Registerer: before})
	tg := newTestGate(t, "restart", func(pg *v1alpha1.PlacementGate) { pg.Spec.MultiKueue = nil })
	fleet.reset(map[string]*clusterMetrics{"restart-1": {9, 72, 8, 72}, "restart-2": {0, 0, 0, 64}})
	fleet.update(func(p *fakePrometheus) { p.sampledAt = time.Now() }) // no later sample shows the workloads
	ready, admitted := tg.submit("ready", 1, tg.gateCheck()), tg.submit("admitted", 1, tg.gateCheck())
	for _, wl := range []*kueue.Workload{ready, admitted} {
		g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Ready: restart-1"))
	}
	tg.updateStatus(admitted, func(s *kueue.WorkloadStatus) {
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: "True", Reason: "Admitted"})
	})
	g.Eventually(metricSum(g, before, "plimsoll_gate_admitted_seconds", "restart")).Should(BeEquivalentTo(1))
	stop()
	startOperator(t, cfg, workload.Options{Registerer: after})
	g.Eventually(metricSum(g, after, "plimsoll_gate_ledger_devices", "restart-1")).Should(BeEquivalentTo(16))
	g.Expect(metricSum(g, after, "plimsoll_gate_admitted_seconds", "restart")()).To(BeZero())
}

// The misprediction rate divides by admissions, so workloads without devices count in both.
func TestCountsAdmissionWithoutDevices(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "nodevices", nil)
	tg.connect("nodevices-1", "nodevices-2")
	fleet.reset(map[string]*clusterMetrics{"nodevices-1": {1, 8, 8, 64}, "nodevices-2": {1, 8, 8, 64}})
	tg.workload.devicesPerPod = "0"
	wl := tg.submitGated("idle", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(HaveLen(1))
	cluster := nominatedClusters(t, wl)()[0]
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		s.NominatedClusterNames, s.ClusterName, s.AdmissionChecks[1].State = nil, &cluster, kueue.CheckStateReady
	})
	g.Eventually(metricSum(g, metricsRegistry, "plimsoll_gate_admitted_seconds", "nodevices")).Should(BeEquivalentTo(1))
}
