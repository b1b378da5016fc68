//go:build integration

package workload_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// change the hub's gate.
func (h *hub) change(edit func(*v1alpha1.PlacementGate)) {
	h.t.Helper()
	NewWithT(h.t).Eventually(func() error {
		pg := &v1alpha1.PlacementGate{}
		if err := api.Get(h.t.Context(), client.ObjectKey{Name: h.name}, pg); err != nil {
			return err
		}
		edit(pg)
		return api.Update(h.t.Context(), pg)
	}).WithTimeout(patience).Should(Succeed())
}

// sourceOf a MultiKueueCluster's credentials.
func sourceOf(t *testing.T, name string) func() string {
	return func() string {
		c := &kueue.MultiKueueCluster{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
			return err.Error()
		}
		if ref := c.Spec.ClusterSource.ClusterProfileRef; ref != nil {
			return "profile " + ref.Name
		}
		return "secret " + c.Spec.ClusterSource.KubeConfig.Location
	}
}

func TestCredentialsFollowTheGate(t *testing.T) {
	g := NewWithT(t)
	cluster := func(name, owner string) *kueue.MultiKueueCluster {
		c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{
			ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: "theirs", LocationType: kueue.SecretLocationType}}}}
		if owner != "" {
			c.Labels = map[string]string{v1alpha1.ManagedByLabel: owner}
		}
		return c
	}
	g.Expect(api.Create(t.Context(), cluster("creds-2", "another"))).To(Succeed())
	h := newHub(t, "creds", nil)
	g.Eventually(sourceOf(t, "creds-1")).WithTimeout(patience).Should(Equal("secret creds-1-kubeconfig"))
	h.change(func(pg *v1alpha1.PlacementGate) { pg.Spec.MultiKueue.Credentials.NameTemplate = "kc-{cluster}" })
	g.Eventually(sourceOf(t, "creds-1")).WithTimeout(patience).Should(Equal("secret kc-creds-1"))
	h.change(func(pg *v1alpha1.PlacementGate) {
		pg.Spec.MultiKueue.Credentials.Type = v1alpha1.CredentialsClusterProfile
	})
	g.Eventually(sourceOf(t, "creds-1")).WithTimeout(patience).Should(Equal("profile kc-creds-1"))
	g.Expect(sourceOf(t, "creds-2")()).To(Equal("secret theirs"))
	g.Eventually(condition(t, "creds", v1alpha1.ConditionConfigured)).WithTimeout(patience).Should(
		HaveSuffix("not created by this gate and left alone: MultiKueueClusters creds-2 (of PlacementGate another)"))
}

func TestAClusterStaysAsLongAsItIsInUse(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "stays", nil)
	h.connect(g, "stays-1", "stays-2")
	members := func() []string {
		config := &kueue.MultiKueueConfig{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: "stays"}, config); err != nil {
			return []string{err.Error()}
		}
		return config.Spec.Clusters
	}
	fleet.set(map[string]*measured{"stays-1": {0, 0, 0, 64}, "stays-2": {1, 8, 8, 64}})
	wl := h.gated("job", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"stays-2"}))
	d := &clusterv1beta1.PlacementDecision{}
	g.Expect(api.Get(t.Context(), client.ObjectKey{Namespace: "stays", Name: "gpu-1"}, d)).To(Succeed())
	d.Status.Decisions = d.Status.Decisions[:1]
	g.Expect(api.Status().Update(t.Context(), d)).To(Succeed())
	g.Eventually(condition(t, "stays", v1alpha1.ConditionMultipleCandidates)).WithTimeout(patience).Should(HavePrefix("False"))
	g.Consistently(members).WithTimeout(5*time.Second).Should(ContainElement("stays-2"), "it leaves after two rounds of a second unless it is in use")
	h.asKueue(wl, func(s *kueue.WorkloadStatus) {
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: "True", Reason: "Succeeded"})
	})
	g.Eventually(members).WithTimeout(2 * patience).Should(Equal([]string{"stays-1"}))
}

func TestGatesThatContradictThemselvesAreRefused(t *testing.T) {
	g := NewWithT(t)
	minimum := int32(50)
	for want, change := range map[string]func(*v1alpha1.PlacementGateSpec){
		"unknownAfterSeconds must be at least maxSampleAgeSeconds": func(s *v1alpha1.PlacementGateSpec) {
			s.Freshness.MaxSampleAgeSeconds, s.Freshness.UnknownAfterSeconds = 120, 119
		},
		"minimum must stand with use: Require alone": func(s *v1alpha1.PlacementGateSpec) {
			s.Policies = []v1alpha1.GatePolicy{{Policy: "fleet", Score: "total", Minimum: &minimum}}
		},
	} {
		pg := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "refused"}, Spec: v1alpha1.PlacementGateSpec{
			PlacementRef: v1alpha1.NamespacedReference{Namespace: "a", Name: "b"}, SourceRef: v1alpha1.LocalReference{Name: "c"}}}
		change(&pg.Spec)
		g.Expect(api.Create(t.Context(), pg)).To(MatchError(ContainSubstring(want)))
	}
	pg := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "accepted"}, Spec: v1alpha1.PlacementGateSpec{
		PlacementRef: v1alpha1.NamespacedReference{Namespace: "a", Name: "b"}, SourceRef: v1alpha1.LocalReference{Name: "c"},
		Freshness: v1alpha1.GateFreshness{MaxSampleAgeSeconds: 60, UnknownAfterSeconds: 60}, Policies: []v1alpha1.GatePolicy{{Policy: "fleet", Score: "total", Use: v1alpha1.UseRequire, Minimum: &minimum}}}}
	g.Expect(api.Create(t.Context(), pg)).To(Succeed())
	g.Expect(api.Delete(t.Context(), pg)).To(Succeed())
}
