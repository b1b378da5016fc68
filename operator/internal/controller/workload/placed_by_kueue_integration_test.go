//go:build integration

package workload_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// An elastic job that grows gets a new Workload, a slice. Kueue sets status.clusterName of the
// slice when it reserves the quota, and MultiKueue waits for the gate's check before it updates
// the job on that cluster.
func TestElasticSliceFollowsKueue(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "elastic", nil)
	tg.connect("elastic-1", "elastic-2")
	fleet.reset(map[string]*clusterMetrics{"elastic-1": {9, 72, 8, 72}, "elastic-2": {0, 0, 0, 64}})
	fleet.update(func(p *fakePrometheus) { p.sampledAt = time.Now() }) // no later sample shows the slice
	tg.waitUntilConnected()
	cluster := "elastic-2" // the gate itself would choose elastic-1
	tg.workload.annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
	tg.workload.changeStatus = func(s *kueue.WorkloadStatus) { s.ClusterName = &cluster }
	wl := tg.submitGated("slice", 1)

	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Ready: "), "the gate does not wait for room")
	g.Eventually(eventsOf(t, wl)).Should(ConsistOf(HavePrefix("PlacedByKueue: ")))
	g.Expect(ledgerEntries(t, wl, "elastic-2")()).To(ConsistOf(HaveField("AdmittedAt", BeZero())), "the worker has not admitted the slice")
	g.Expect(ledgerEntries(t, wl, "elastic-1")()).To(BeEmpty())
	g.Consistently(nominatedClusters(t, wl)).WithTimeout(2 * time.Second).Should(BeEmpty())
	g.Expect(checkState(t, wl, tg.multiKueueCheck())()).To(HavePrefix("Pending: "), "MultiKueue sets its own check")
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		s.AdmissionChecks[1].State, s.AdmissionChecks[1].LastTransitionTime = kueue.CheckStateReady, metav1.Now()
	})
	g.Eventually(ledgerEntries(t, wl, "elastic-2")).Should(ConsistOf(HaveField("AdmittedAt", Not(BeZero()))))
}
