//go:build integration

package workload_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Whoever waits for a gate that was deleted is counted, and the alert can tell.
func TestWhoWaitsForADeletedGate(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "missed", nil)
	g.Expect(api.Delete(t.Context(), &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "missed"}})).To(Succeed())
	wl := h.gated("job", 1)
	g.Eventually(check(t, wl, "missed-plimsoll")).WithTimeout(patience).Should(Equal("Pending: PlacementGate missed does not exist"))
	g.Eventually(reasons(t, wl)).WithTimeout(patience).Should(
		ContainElement("GateNotReady: PlacementGate missed does not exist"), "the operator may learn of the job before it does of the gate's end")
	waiting := func() float64 { return summarize(g, metricsRegistry, "plimsoll_gate_waiting_workloads", "missed") }
	g.Eventually(waiting).WithTimeout(patience).Should(BeEquivalentTo(1))
	g.Expect(api.Delete(t.Context(), wl)).To(Succeed())
	g.Eventually(waiting).WithTimeout(patience).Should(BeZero())
}

// Kueue adds a check that is new on the queue to workloads that hold quota.
func TestASecondCheckOfAReadyWorkload(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "later", nil)
	h.connect(g, "later-1", "later-2")
	fleet.set(map[string]*measured{"later-1": {1, 8, 8, 64}, "later-2": {0, 0, 0, 64}})
	h.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "later-again"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: v1alpha1.ControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "PlacementGate", Name: "later"}}})
	wl := h.gated("job", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"later-1"}))
	h.asKueue(wl, func(s *kueue.WorkloadStatus) {
		s.AdmissionChecks = append(s.AdmissionChecks, kueue.AdmissionCheckState{Name: "later-again", State: kueue.CheckStatePending, LastTransitionTime: metav1.Now()})
	})
	g.Eventually(check(t, wl, "later-again")).WithTimeout(patience).Should(
		Equal("Pending: more than one placement check stands on this queue, leave one: later-again, later-plimsoll"))
	g.Expect(check(t, wl, "later-plimsoll")()).To(HavePrefix("Ready: later-1 can take it"))
	h.asKueue(wl, func(s *kueue.WorkloadStatus) { s.AdmissionChecks = s.AdmissionChecks[:2] })
	g.Expect(nominated(t, wl)()).To(Equal([]string{"later-1"}), "with one check left it goes on")
}
