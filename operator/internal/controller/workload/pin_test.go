//go:build integration

package workload_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

const virtual = "example.com/cluster"

// virtualNodes lets the gate pin pods to a virtual node, without MultiKueue.
func virtualNodes(pg *v1alpha1.PlacementGate) {
	pg.Spec.MultiKueue = nil
	pg.Spec.PodSetUpdates = &v1alpha1.GatePodSetUpdates{NodeSelector: map[string]string{virtual: "vk-{cluster}"},
		Tolerations: []corev1.Toleration{{Key: virtual, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}}
}

func TestPinsPodsToVirtualNodes(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "pin", virtualNodes)
	fleet.set(map[string]*measured{"pin-1": {0, 4, 4, 64}, "pin-2": {2, 16, 8, 64}})
	wl := h.submit("job", 1, "pin-plimsoll")
	g.Eventually(check(t, wl, "pin-plimsoll")).WithTimeout(patience).Should(Equal("Ready: pin-2 can take it: room for 2 such pods there"))
	live := get(t, wl)
	g.Expect(kueuestate.FindCheck(live, "pin-plimsoll").PodSetUpdates).To(Equal([]kueue.PodSetUpdate{{Name: "main", NodeSelector: map[string]string{virtual: "vk-pin-2"},
		Tolerations: []corev1.Toleration{{Key: virtual, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}}}))
	g.Expect(live.Annotations).NotTo(HaveKey(v1alpha1.DispatchAnnotation), "the check says it all, in one write")
	g.Expect(live.Status.NominatedClusterNames).To(BeEmpty(), "nobody is there to copy it")

	h.asKueue(wl, func(s *kueue.WorkloadStatus) {
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: "True", Reason: "Admitted"})
	})
	g.Eventually(func() string {
		e, err := served.Explain(t.Context(), client.ObjectKeyFromObject(wl))
		if err != nil {
			return err.Error()
		}
		return e.Cluster + ", waits for " + e.WaitsFor
	}).WithTimeout(patience).Should(Equal("pin-2, waits for nothing: it is on pin-2"))

	h.nodeSelector = map[string]string{virtual: "vk-pin-1"}
	elsewhere := h.submit("elsewhere", 1, "pin-plimsoll")
	g.Eventually(check(t, elsewhere, "pin-plimsoll")).WithTimeout(patience).Should(Equal("Pending: no cluster has 8 free " + h100 +
		" on one node: best is pin-1 with 4; pin-2 is not where the node selector example.com/cluster=vk-pin-1 is met"))
}

// Kueue merges our updates with the flavor's labels and other checks' updates, and
// does not start a job where they contradict each other.
func TestPinsWhereNothingContradicts(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "merge", virtualNodes)
	h.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "vk-1"}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{virtual: "vk-merge-1", "nvidia.com/gpu.product": h100}}})
	fleet.set(map[string]*measured{"merge-1": {2, 16, 8, 64}, "merge-2": {4, 32, 8, 64}})
	h.flavor = "vk-1"
	wl := h.submit("flavor", 1, "merge-plimsoll")
	g.Eventually(check(t, wl, "merge-plimsoll")).WithTimeout(patience).Should(HavePrefix("Ready: merge-1 can take it"))
	g.Eventually(why(t, wl, "merge-2")).WithTimeout(patience).Should(Equal("is not where the node selector example.com/cluster=vk-merge-1 of flavor vk-1 is met"))
	h.flavor = ""
	wl = h.submit("check", 1, "merge-other", "merge-plimsoll-later")
	h.asKueue(wl, func(s *kueue.WorkloadStatus) {
		s.AdmissionChecks[0].State = kueue.CheckStateReady
		s.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", NodeSelector: map[string]string{virtual: "vk-merge-1"}}}
		s.AdmissionChecks[1].Name = "merge-plimsoll"
	})
	g.Eventually(check(t, wl, "merge-plimsoll")).WithTimeout(patience).Should(HavePrefix("Ready: merge-1 can take it"))
	g.Eventually(why(t, wl, "merge-2")).WithTimeout(patience).Should(Equal(
		"is not where the node selector example.com/cluster=vk-merge-1 of admission check merge-other is met"))
}

func TestMultiKueueWorkloadsAreNeverUpdated(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "nopin", virtualNodes)
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "nopin"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"nopin-1", "nopin-2"}}}
	h.create(config)
	for _, name := range config.Spec.Clusters {
		h.create(&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{
			ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: name, LocationType: kueue.SecretLocationType}}}})
	}
	h.connect(g, config.Spec.Clusters...)
	fleet.set(map[string]*measured{"nopin-1": {1, 8, 8, 64}, "nopin-2": {0, 0, 0, 64}})
	wl := h.gated("job", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"nopin-1"}))
	g.Expect(kueuestate.FindCheck(get(t, wl), "nopin-plimsoll").PodSetUpdates).To(BeEmpty())

	both := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "both"}}
	virtualNodes(both)
	both.Spec.PlacementRef, both.Spec.SourceRef.Name = v1alpha1.NamespacedReference{Namespace: "nopin", Name: "gpu"}, "nopin"
	both.Spec.MultiKueue = &v1alpha1.GateMultiKueue{ConfigName: "both"}
	g.Expect(api.Create(t.Context(), both)).To(MatchError(ContainSubstring("podSetUpdates must not be set together with multiKueue")))
}
