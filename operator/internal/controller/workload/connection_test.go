//go:build integration

package workload_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// relabel the hub's MultiKueueConfig as another gate's.
func (h *hub) relabel(owner string) {
	h.t.Helper()
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.ManagedByLabel, owner)
	if err := api.Patch(h.t.Context(), config, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		h.t.Fatal(err)
	}
}

func TestALostConfigurationDisturbsNothingOnItsWay(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "lost", func(pg *v1alpha1.PlacementGate) { pg.Spec.Widen.AfterSeconds = 1 })
	h.connect(g, "lost-1", "lost-2")
	fleet.set(map[string]*measured{"lost-1": {4, 32, 8, 64}, "lost-2": {0, 0, 0, 64}})
	sent := h.gated("sent", 1)
	g.Eventually(nominated(t, sent)).WithTimeout(patience).Should(Equal([]string{"lost-1"}))
	h.relabel("another")
	g.Eventually(active(t, "lost")).WithTimeout(patience).Should(HavePrefix("False NotOurs: MultiKueueConfig lost belongs to PlacementGate another"))
	wl := h.gated("new", 1)
	g.Eventually(check(t, wl, "lost-plimsoll")).WithTimeout(patience).Should(HavePrefix("Pending: PlacementGate lost: MultiKueueConfig lost belongs to PlacementGate another"))
	g.Consistently(func(g Gomega) {
		g.Expect(nominated(t, sent)()).To(ContainElement("lost-1"))
		g.Expect(check(t, sent, "lost-plimsoll")()).To(HavePrefix("Ready: lost-1 can take it"))
		g.Expect(nominated(t, wl)()).To(BeEmpty())
	}).WithTimeout(5 * time.Second).Should(Succeed())
	h.relabel("lost")
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"lost-1"}), "mended, it goes on by itself")
	g.Eventually(active(t, "lost")).WithTimeout(patience).Should(HavePrefix("True Active"))
}

// disconnect a cluster as Kueue does when its credentials no longer work.
func (h *hub) disconnect(name string) {
	h.t.Helper()
	NewWithT(h.t).Eventually(func() error {
		c := &kueue.MultiKueueCluster{}
		if err := api.Get(h.t.Context(), client.ObjectKey{Name: name}, c); err != nil {
			return err
		}
		apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type: kueue.MultiKueueClusterActive, Status: "False", Reason: "BadKubeConfig", Message: "Unauthorized"})
		return api.Status().Update(h.t.Context(), c)
	}).WithTimeout(patience).Should(Succeed())
}

func TestAClusterThatLosesItsCredentials(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "creds-lost", nil)
	h.connect(g, "creds-lost-1", "creds-lost-2")
	fleet.set(map[string]*measured{"creds-lost-1": {4, 32, 8, 64}, "creds-lost-2": {1, 8, 8, 64}})
	sent := h.gated("sent", 4)
	g.Eventually(nominated(t, sent)).WithTimeout(patience).Should(Equal([]string{"creds-lost-1"}))
	running := "creds-lost-1"
	h.asKueue(sent, func(s *kueue.WorkloadStatus) { s.ClusterName, s.NominatedClusterNames = &running, nil })
	h.disconnect("creds-lost-1")

	wl := h.gated("big", 4)
	g.Eventually(check(t, wl, "creds-lost-plimsoll")).WithTimeout(patience).Should(And(HavePrefix("Pending: "), ContainSubstring("Unauthorized")))
	other := h.gated("small", 1)
	g.Eventually(nominated(t, other)).WithTimeout(patience).Should(Equal([]string{"creds-lost-2"}))
	g.Expect(*get(t, sent).Status.ClusterName).To(Equal("creds-lost-1"), "what runs there runs on")
	config := &kueue.MultiKueueConfig{}
	g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "creds-lost"}, config)).To(Succeed())
	g.Expect(config.Spec.Clusters).To(ConsistOf("creds-lost-1", "creds-lost-2"), "to leave would evict what runs there")

	fleet.set(map[string]*measured{"creds-lost-1": {8, 64, 8, 64}, "creds-lost-2": {0, 0, 0, 64}})
	h.connect(g, "creds-lost-1")
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"creds-lost-1"}), "connected again, it goes on by itself")
}
