//go:build integration

package workload_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// multiKueueClusterWithSecret is a MultiKueueCluster that a user created.
func multiKueueClusterWithSecret(name, secret string) *kueue.MultiKueueCluster {
	return &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{
		ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: secret, LocationType: kueue.SecretLocationType}}}}
}

func TestGateConfiguresMultiKueue(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "conf", nil)
	g.Eventually(configClusters(t, "conf")).Should(Equal([]string{"conf-1", "conf-2"}))
	config := &kueue.MultiKueueConfig{}
	g.Expect(apiClient.Get(t.Context(), client.ObjectKey{Name: "conf"}, config)).To(Succeed())
	g.Expect(config.Labels).To(HaveKeyWithValue(v1alpha1.ManagedByLabel, "conf"))
	cluster := &kueue.MultiKueueCluster{}
	g.Expect(apiClient.Get(t.Context(), client.ObjectKey{Name: "conf-2"}, cluster)).To(Succeed())
	g.Expect(cluster.Spec.ClusterSource.KubeConfig.Location).To(Equal("conf-2-kubeconfig"))
	g.Expect(append(config.OwnerReferences, cluster.OwnerReferences...)).To(BeEmpty(), "garbage collection would evict running jobs")

	g.Eventually(checkActive(t, "conf")).Should(HavePrefix("True Active"))
	tg.updateGate(func(pg *v1alpha1.PlacementGate) { pg.Spec.Queries.Fit = `sum by (cluster) (x{model="$model"}` })
	g.Eventually(checkActive(t, "conf")).Should(HavePrefix("False InvalidQuery: fit: "))
	tg.updateGate(func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Queries.Fit, pg.Spec.PlacementRef.Name = "", "absent"
	})
	g.Eventually(checkActive(t, "conf")).Should(Equal("False PlacementNotFound: Placement conf/absent does not exist"))
	tg.updateGate(func(pg *v1alpha1.PlacementGate) { pg.Spec.PlacementRef.Name = "gpu" })
	g.Eventually(checkActive(t, "conf")).Should(HavePrefix("True Active"))

	tg.deleteGate()
	g.Eventually(checkActive(t, "conf")).Should(Equal("False GateNotFound: " + gateMissing("conf")))
	g.Expect(configClusters(t, "conf")()).NotTo(BeEmpty(), "the configuration of running jobs must remain")
}

func TestForeignConfigIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	foreign := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"other"}}}
	g.Expect(apiClient.Create(t.Context(), foreign)).To(Succeed())
	newTestGate(t, "foreign", nil)
	g.Eventually(gateCondition(t, "foreign", v1alpha1.ConditionConfigured)).Should(Equal("False NotOurs: " + configForeign("foreign", "foreign")))
	g.Expect(configClusters(t, "foreign")()).To(Equal([]string{"other"}))
}

func TestForeignClusterIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	foreign := multiKueueClusterWithSecret("foreigncluster-1", "by-hand")
	g.Expect(apiClient.Create(t.Context(), foreign)).To(Succeed())
	newTestGate(t, "foreigncluster", nil)
	g.Eventually(gateCondition(t, "foreigncluster", v1alpha1.ConditionConfigured)).Should(And(
		HavePrefix("True Written: MultiKueueConfig foreigncluster contains foreigncluster-1, foreigncluster-2; "), HaveSuffix("does not change them: foreigncluster-1")))
	before := foreign.ResourceVersion
	g.Expect(apiClient.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
	g.Expect(foreign.ResourceVersion).To(Equal(before))
}

func TestCredentialsFollowGate(t *testing.T) {
	g := NewWithT(t)
	foreign := multiKueueClusterWithSecret("creds-2", "by-hand")
	foreign.Labels = map[string]string{v1alpha1.ManagedByLabel: "another"}
	g.Expect(apiClient.Create(t.Context(), foreign)).To(Succeed())
	tg := newTestGate(t, "creds", nil)
	g.Eventually(credentialsOf(t, "creds-1")).Should(Equal("secret creds-1-kubeconfig"))
	tg.updateGate(func(pg *v1alpha1.PlacementGate) { pg.Spec.MultiKueue.Credentials.NameTemplate = "kc-{cluster}" })
	g.Eventually(credentialsOf(t, "creds-1")).Should(Equal("secret kc-creds-1"))
	tg.updateGate(func(pg *v1alpha1.PlacementGate) {
		pg.Spec.MultiKueue.Credentials.Type = v1alpha1.CredentialsClusterProfile
	})
	g.Eventually(credentialsOf(t, "creds-1")).Should(Equal("profile kc-creds-1"))
	g.Expect(credentialsOf(t, "creds-2")()).To(Equal("secret by-hand"))
	g.Eventually(gateCondition(t, "creds", v1alpha1.ConditionConfigured)).Should(HaveSuffix("does not change them: creds-2 (of PlacementGate another)"))
}

func TestClusterInUseStaysInConfig(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "inuse", nil)
	tg.connect("inuse-1", "inuse-2")
	fleet.reset(map[string]*clusterMetrics{"inuse-1": {0, 0, 0, 64}, "inuse-2": {1, 8, 8, 64}})
	wl := tg.submitGated("job", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"inuse-2"}))
	tg.setDecisions("inuse-1")
	g.Eventually(gateCondition(t, "inuse", v1alpha1.ConditionMultipleCandidates)).Should(HavePrefix("False"))
	g.Consistently(configClusters(t, "inuse")).WithTimeout(5*time.Second).Should(ContainElement("inuse-2"),
		"an unused cluster would be removed after two rounds of one second")
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: "True", Reason: "Succeeded"})
	})
	g.Eventually(configClusters(t, "inuse")).WithTimeout(2 * waitTimeout).Should(Equal([]string{"inuse-1"}))
}

func TestConfigIsTruncatedAtMultiKueueLimit(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "many", nil)
	var clusters []string
	for i := range 23 {
		clusters = append(clusters, fmt.Sprintf("many-%02d", i))
	}
	g.Eventually(gateCondition(t, "many", v1alpha1.ConditionConfigured)).Should(HavePrefix("True Written"))
	tg.setDecisions(append(clusters, "many-1", "many-2")...)
	g.Eventually(gateCondition(t, "many", v1alpha1.ConditionConfigured)).Should(And(
		HavePrefix("False ClustersTruncated: MultiKueueConfig many contains the maximum of 20 clusters"), HaveSuffix("many-18, many-19, many-20, many-21, many-22")))
	members, err := configClusters(t, "many")()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(members).To(HaveLen(20))
	g.Expect(members).To(ContainElements("many-1", "many-2"), "present members stay")
	g.Expect(slices.IsSorted(members)).To(BeTrue(), "the order is stable: %v", members)
	connections := &kueue.MultiKueueClusterList{}
	g.Expect(apiClient.List(t.Context(), connections, client.MatchingLabels{v1alpha1.ManagedByLabel: "many"})).To(Succeed())
	g.Expect(connections.Items).To(HaveLen(20), "Kueue would connect to a MultiKueueCluster that is in no configuration")
}
