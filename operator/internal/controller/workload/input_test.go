//go:build integration

package workload_test

import (
	"fmt"
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

// said is a condition as a user reads it.
func said(conditions []metav1.Condition, kind string) string {
	c := apimeta.FindStatusCondition(conditions, kind)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// condition of a gate.
func condition(t *testing.T, gateName, kind string) func() string {
	return func() string {
		pg := &v1alpha1.PlacementGate{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: gateName}, pg); err != nil {
			return err.Error()
		}
		return said(pg.Status.Conditions, kind)
	}
}

// active condition of a gate's check, which Kueue obeys.
func active(t *testing.T, gateName string) func() string {
	return func() string {
		c := &kueue.AdmissionCheck{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: gateName + "-plimsoll"}, c); err != nil {
			return err.Error()
		}
		return said(c.Status.Conditions, kueue.AdmissionCheckActive)
	}
}

func (h *hub) parameters(check, config string) {
	h.t.Helper()
	NewWithT(h.t).Eventually(func() error {
		c := &kueue.AdmissionCheck{}
		if err := api.Get(h.t.Context(), client.ObjectKey{Name: check}, c); err != nil {
			return err
		}
		c.Spec.Parameters.Name = config
		return api.Update(h.t.Context(), c)
	}).WithTimeout(patience).Should(Succeed())
}

func TestAbsentScore(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "noscore", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Policies = []v1alpha1.GatePolicy{{Policy: "fleet", Score: "totla", Use: v1alpha1.UseRequire}}
	})
	h.connect(g, "noscore-1", "noscore-2")
	fleet.set(map[string]*measured{"noscore-1": {1, 8, 8, 64}, "noscore-2": {1, 8, 8, 64}})
	wl := h.gated("job", 1)
	g.Eventually(condition(t, "noscore", "ScoresFound")).WithTimeout(patience).Should(
		Equal("False NoSuchScore: no decided cluster has an AddOnPlacementScore with fleet/totla"))
	g.Eventually(check(t, wl, "noscore-plimsoll")).WithTimeout(patience).Should(
		Equal("Pending: no cluster can take it; noscore-1 has no valid score fleet/totla, noscore-2 has no valid score fleet/totla"))
	g.Expect(active(t, "noscore")()).To(HavePrefix("True Active"), "an absent score stops no queue")
}

func TestConditionThatDoesNotParse(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "fault", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Conditions = []v1alpha1.GateCondition{{Name: "power", Query: "sum by (cluster) (power{model=\"$model\"}"}}
	})
	g.Eventually(active(t, "fault")).WithTimeout(patience).Should(Equal("False InvalidQuery: conditions/power: 1:40: unclosed left parenthesis"))
	g.Expect(condition(t, "fault", v1alpha1.ConditionQueriesValid)()).To(Equal(active(t, "fault")()))
	wl := h.gated("job", 1)
	g.Eventually(check(t, wl, "fault-plimsoll")).WithTimeout(patience).Should(
		Equal("Pending: PlacementGate fault: conditions/power: 1:40: unclosed left parenthesis"))
}

func TestTwoGatesOfOneConfiguration(t *testing.T) {
	g := NewWithT(t)
	newHub(t, "first", nil)
	g.Eventually(condition(t, "first", v1alpha1.ConditionConfigured)).WithTimeout(patience).Should(HavePrefix("True Written"))
	second := newHub(t, "second", func(pg *v1alpha1.PlacementGate) { pg.Spec.MultiKueue.ConfigName = "first" })
	second.parameters("second-multikueue", "first")
	const theirs = "MultiKueueConfig first belongs to PlacementGate first and is left alone: name another in spec.multiKueue.configName"
	g.Eventually(condition(t, "second", v1alpha1.ConditionConfigured)).WithTimeout(patience).Should(Equal("False NotOurs: " + theirs))
	g.Expect(condition(t, "second", v1alpha1.ConditionReady)()).To(Equal("False NotOurs: " + theirs))
	g.Eventually(active(t, "second")).WithTimeout(patience).Should(Equal("False NotOurs: " + theirs))
	wl := second.gated("job", 1)
	g.Eventually(check(t, wl, "second-plimsoll")).WithTimeout(patience).Should(Equal("Pending: PlacementGate second: " + theirs))
	g.Expect(nominated(t, wl)()).To(BeEmpty())
	config := &kueue.MultiKueueConfig{}
	g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "first"}, config)).To(Succeed())
	g.Expect(config.Spec.Clusters).To(Equal([]string{"first-1", "first-2"}))
}

func TestTwoChecksOnOneQueue(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "twice", nil)
	h.connect(g, "twice-1", "twice-2")
	fleet.set(map[string]*measured{"twice-1": {1, 8, 8, 64}, "twice-2": {1, 8, 8, 64}})
	h.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "twice-again"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: v1alpha1.ControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "PlacementGate", Name: "twice"}}})
	wl := h.submit("job", 1, "twice-plimsoll", "twice-again", "twice-multikueue")
	for _, name := range []string{"twice-plimsoll", "twice-again"} {
		g.Eventually(check(t, wl, name)).WithTimeout(patience).Should(
			Equal("Pending: more than one placement check stands on this queue, leave one: twice-again, twice-plimsoll"))
	}
	g.Expect(nominated(t, wl)()).To(BeEmpty())
}

func TestMultiKueueWithAnotherConfiguration(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "apart", nil)
	h.connect(g, "apart-1", "apart-2")
	fleet.set(map[string]*measured{"apart-1": {1, 8, 8, 64}, "apart-2": {1, 8, 8, 64}})
	h.create(&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"apart-1"}}})
	h.parameters("apart-multikueue", "elsewhere")
	wl := h.gated("job", 1)
	g.Eventually(check(t, wl, "apart-plimsoll")).WithTimeout(patience).Should(
		Equal("Pending: PlacementGate apart: admission check apart-multikueue uses MultiKueueConfig elsewhere, the gate keeps apart: let both name the same"))
	g.Expect(nominated(t, wl)()).To(BeEmpty())
	h.parameters("apart-multikueue", "apart")
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(HaveLen(1), "mended, it goes on by itself")
}

func TestNothingDecided(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "empty", nil)
	h.redecide()
	g.Eventually(condition(t, "empty", v1alpha1.ConditionReady)).WithTimeout(patience).Should(Equal("False NoDecisions: the Placement has decided no cluster"))
	g.Eventually(active(t, "empty")).WithTimeout(patience).Should(HavePrefix("True Active"), "it waits; the queue is not to blame")
	wl := h.gated("job", 1)
	g.Eventually(check(t, wl, "empty-plimsoll")).WithTimeout(patience).Should(Equal("Pending: Placement empty/gpu has decided no cluster"))
}

func TestMoreClustersThanMultiKueueHolds(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "many", nil)
	var all []string
	for i := range 25 {
		all = append(all, fmt.Sprintf("many-%02d", i))
	}
	g.Eventually(condition(t, "many", v1alpha1.ConditionConfigured)).WithTimeout(patience).Should(HavePrefix("True Written"))
	h.redecide(append(all[:23:23], "many-1", "many-2")...)
	g.Eventually(condition(t, "many", v1alpha1.ConditionConfigured)).WithTimeout(patience).Should(
		Equal("False ClustersTruncated: MultiKueueConfig many is full at 20 clusters; left out: many-18, many-19, many-20, many-21, many-22"))
	config := &kueue.MultiKueueConfig{}
	g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "many"}, config)).To(Succeed())
	g.Expect(config.Spec.Clusters).To(HaveLen(20))
	g.Expect(config.Spec.Clusters[:2]).To(Equal([]string{"many-1", "many-2"}), "members keep their places")
	connections := &kueue.MultiKueueClusterList{}
	g.Expect(api.List(t.Context(), connections, client.MatchingLabels{v1alpha1.ManagedByLabel: "many"})).To(Succeed())
	g.Expect(connections.Items).To(HaveLen(20), "Kueue connects to each, also to those that no configuration holds")
}

func TestForeignClusterIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	theirs := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "alien-1"}, Spec: kueue.MultiKueueClusterSpec{
		ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: "by-hand", LocationType: kueue.SecretLocationType}}}}
	g.Expect(api.Create(t.Context(), theirs)).To(Succeed())
	newHub(t, "alien", nil)
	g.Eventually(condition(t, "alien", v1alpha1.ConditionConfigured)).WithTimeout(patience).Should(
		Equal("True Written: MultiKueueConfig alien holds alien-1, alien-2; not created by this gate and left alone: MultiKueueClusters alien-1"))
	before := theirs.ResourceVersion
	g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
	g.Expect(theirs.ResourceVersion).To(Equal(before))
}

// Kueue that still nominates every cluster at once, as it does by default.
func TestAnotherDispatcherIsReported(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "rival", func(pg *v1alpha1.PlacementGate) { pg.Spec.Widen.AfterSeconds = 1 })
	h.connect(g, "rival-1", "rival-2")
	fleet.set(map[string]*measured{"rival-1": {1, 8, 8, 64}, "rival-2": {0, 0, 0, 64}})
	g.Eventually(condition(t, "rival", v1alpha1.ConditionDispatcherMatches)).WithTimeout(patience).Should(HavePrefix("True OnlyDispatcher"))
	wl := h.gated("job", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"rival-1"}))
	h.asKueue(wl, func(s *kueue.WorkloadStatus) { s.NominatedClusterNames = []string{"rival-1", "rival-2"} })
	g.Eventually(condition(t, "rival", v1alpha1.ConditionDispatcherMatches)).WithTimeout(2 * patience).Should(Equal(
		"False AnotherDispatcher: rival/job was nominated to rival-2 by another dispatcher; set multiKueue.dispatcherName to plimsoll.dev/dispatcher in Kueue's configuration"))
	version := get(t, wl).ResourceVersion
	g.Consistently(func() string { return get(t, wl).ResourceVersion }).WithTimeout(2*time.Second).Should(Equal(version), "two that nominate must not fight")
	g.Expect(nominated(t, wl)()).To(Equal([]string{"rival-1", "rival-2"}))
}

func TestWorkersQueueIsNamed(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "quota", nil)
	h.connect(g, "quota-1", "quota-2")
	fleet.set(map[string]*measured{"quota-1": {4, 32, 8, 64}, "quota-2": {4, 32, 8, 64}})
	fleet.with(func(m *metrics) { m.quota, m.kueue = map[string]float64{"quota-2": 15}, []string{"quota-1", "quota-2"} })
	wl := h.gated("job", 2)
	g.Eventually(check(t, wl, "quota-plimsoll")).WithTimeout(patience).Should(Equal("Pending: no cluster has room for 2 pods of 8 " + h100 +
		": best is quota-2, whose queue has quota for 1; quota-1 has no quota for nvidia.com/gpu in a ClusterQueue gpu"))
	g.Consistently(nominated(t, wl)).WithTimeout(3 * time.Second).Should(BeEmpty())
	fleet.with(func(m *metrics) { m.quota["quota-2"] = 16 })
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"quota-2"}))
	g.Expect(check(t, wl, "quota-plimsoll")()).To(Equal("Ready: quota-2 can take it: room for 2 such pods there"))
}

// Preemption is Kueue's: a worker whose quota others have reserved may still be the
// place for a workload whose queue preempts.
func TestPreemptingQueueIsNotBoundByQuota(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "prio", nil)
	h.connect(g, "prio-1", "prio-2")
	h.clusterQueue = "prio"
	h.create(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "prio"}, Spec: kueue.ClusterQueueSpec{
		Preemption: &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}}})
	fleet.set(map[string]*measured{"prio-1": {4, 32, 8, 64}, "prio-2": {4, 32, 8, 64}})
	fleet.with(func(m *metrics) { m.quota, m.kueue = map[string]float64{"prio-2": 0}, []string{"prio-1", "prio-2"} })
	wl := h.gated("job", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"prio-2"}), "prio-1 has no such queue")
}

// redecide replaces the Placement's decisions.
func (h *hub) redecide(clusters ...string) {
	h.t.Helper()
	NewWithT(h.t).Eventually(func() error {
		d := &clusterv1beta1.PlacementDecision{}
		if err := api.Get(h.t.Context(), client.ObjectKey{Namespace: h.name, Name: "gpu-1"}, d); err != nil {
			return err
		}
		d.Status.Decisions = []clusterv1beta1.ClusterDecision{}
		for _, c := range clusters {
			d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: c})
		}
		return api.Status().Update(h.t.Context(), d)
	}).WithTimeout(patience).Should(Succeed())
}
