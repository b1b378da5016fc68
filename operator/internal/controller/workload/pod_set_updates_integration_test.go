//go:build integration

package workload_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// clusterLabel is the label and the taint of virtual nodes.
const clusterLabel = "example.com/cluster"

// pinToVirtualNodes configures a gate that pins pods to a virtual node, without MultiKueue.
func pinToVirtualNodes(pg *v1alpha1.PlacementGate) {
	pg.Spec.MultiKueue = nil
	pg.Spec.PodSetUpdates = &v1alpha1.GatePodSetUpdates{NodeSelector: map[string]string{clusterLabel: "vk-{cluster}"},
		Tolerations: []corev1.Toleration{{Key: clusterLabel, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}}
}

func TestPinsPodsToVirtualNode(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "pin", pinToVirtualNodes)
	fleet.reset(map[string]*clusterMetrics{"pin-1": {0, 4, 4, 64}, "pin-2": {2, 16, 8, 64}})
	wl := tg.submit("job", 1, tg.gateCheck())
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Ready: " + hasRoom("pin-2", 2)))
	live := getWorkload(t, wl)
	g.Expect(kueuestate.FindCheck(live, tg.gateCheck()).PodSetUpdates).To(Equal([]kueue.PodSetUpdate{{
		Name: "main", NodeSelector: map[string]string{clusterLabel: "vk-pin-2"}, Annotations: map[string]string{v1alpha1.ClusterAnnotation: "pin-2"},
		Tolerations: []corev1.Toleration{{Key: clusterLabel, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}}}))
	g.Expect(live.Annotations).NotTo(HaveKey(v1alpha1.DispatchAnnotation), "the check alone records the decision, in one write")
	g.Expect(live.Status.NominatedClusterNames).To(BeEmpty())

	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: "True", Reason: "Admitted"})
	})
	g.Eventually(explain(t, reconciler, wl)).Should(And(
		HaveField("Cluster", "pin-2"), HaveField("WaitsFor", "nothing: the workload is on pin-2")))
}

func TestPinningRespectsNodeSelectorOfPods(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "selector", pinToVirtualNodes)
	fleet.reset(map[string]*clusterMetrics{"selector-1": {0, 4, 4, 64}, "selector-2": {2, 16, 8, 64}})
	tg.workload.nodeSelector = map[string]string{clusterLabel: "vk-selector-1"}
	wl := tg.submit("job", 1, tg.gateCheck())
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal(
		"Pending: " + nodeTooSmall("selector-1", 4) + "; selector-2 " + selectorUnmet("example.com/cluster=vk-selector-1")))
}

// Kueue merges the gate's podSetUpdates with the flavor's labels and the updates of other
// checks, and does not start a job if two of them differ.
func TestPinningRespectsFlavorAndOtherChecks(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "merge", pinToVirtualNodes)
	tg.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "vk-1"}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{clusterLabel: "vk-merge-1", "nvidia.com/gpu.product": h100}}})
	fleet.reset(map[string]*clusterMetrics{"merge-1": {2, 16, 8, 64}, "merge-2": {4, 32, 8, 64}})

	tg.workload.flavor = "vk-1"
	wl := tg.submit("flavor", 1, tg.gateCheck())
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Ready: merge-1 has room"))
	g.Eventually(explainCluster(t, wl, "merge-2")).Should(Equal(selectorUnmet("example.com/cluster=vk-merge-1 of flavor vk-1")))

	tg.workload.flavor = ""
	tg.workload.changeStatus = func(s *kueue.WorkloadStatus) {
		s.AdmissionChecks[0].State = kueue.CheckStateReady
		s.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", NodeSelector: map[string]string{clusterLabel: "vk-merge-1"}}}
	}
	wl = tg.submit("check", 1, "merge-other", tg.gateCheck())
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Ready: merge-1 has room"))
	g.Eventually(explainCluster(t, wl, "merge-2")).Should(Equal(selectorUnmet("example.com/cluster=vk-merge-1 of admission check merge-other")))
}

func TestMultiKueueWorkloadIsNotPinned(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "nopin", pinToVirtualNodes)
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "nopin"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"nopin-1", "nopin-2"}}}
	tg.create(config)
	for _, name := range config.Spec.Clusters {
		tg.create(multiKueueClusterWithSecret(name, name))
	}
	tg.connect(config.Spec.Clusters...)
	fleet.reset(map[string]*clusterMetrics{"nopin-1": {1, 8, 8, 64}, "nopin-2": {0, 0, 0, 64}})
	wl := tg.submitGated("job", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"nopin-1"}))
	g.Expect(kueuestate.FindCheck(getWorkload(t, wl), tg.gateCheck()).PodSetUpdates).To(BeEmpty())
}
