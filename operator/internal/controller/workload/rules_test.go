//go:build integration

package workload_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
)

// queue of the hub that a LocalQueue of the namespace points to.
func (h *hub) queue(local, clusterQueue, cohort string) {
	h.t.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: clusterQueue}, Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort)}}
	if err := api.Create(h.t.Context(), cq); client.IgnoreAlreadyExists(err) != nil {
		h.t.Fatal(err)
	}
	h.create(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: local},
		Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}})
}

// pending workload that waits for quota in a local queue.
func (h *hub) pending(name, queue string) {
	h.t.Helper()
	h.create(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: name}, Spec: kueue.WorkloadSpec{
		QueueName: kueue.LocalQueueName(queue), PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}}}}})
}

// publish a score for a cluster, as a ScoringPolicy does.
func (h *hub) publish(cluster string, value int32) {
	h.t.Helper()
	if err := api.Create(h.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}); client.IgnoreAlreadyExists(err) != nil {
		h.t.Fatal(err)
	}
	NewWithT(h.t).Eventually(func() error {
		s := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "fleet", Labels: map[string]string{"publisher": "test"}}}
		if err := api.Create(h.t.Context(), s); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		if err := api.Get(h.t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		until := metav1.NewTime(time.Now().Add(time.Hour))
		s.Status = clusterv1alpha1.AddOnPlacementScoreStatus{ValidUntil: &until, Scores: []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "total", Value: value}}}
		return api.Status().Update(h.t.Context(), s)
	}).WithTimeout(patience).Should(Succeed())
}

func TestYieldsOnlyToOthers(t *testing.T) {
	for name, cohort := range map[string]string{"yield": "", "yield-cohort": "shared"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHub(t, name, func(pg *v1alpha1.PlacementGate) {
				pg.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 1}
			})
			h.connect(g, name+"-1", name+"-2")
			fleet.set(map[string]*measured{name + "-1": {0, 4, 4, 64}, name + "-2": {0, 6, 6, 64}})
			h.clusterQueue = name
			h.queue("gpu", name, cohort)
			other := "gpu"
			if cohort != "" {
				h.queue("neighbor", "neighbor", cohort)
				other = "neighbor"
			}
			h.queue("apart", name+"-apart", "")
			h.pending("elsewhere", "apart")
			wl := h.gated("big", 1)
			g.Eventually(check(t, wl, name+"-plimsoll")).WithTimeout(patience).Should(HavePrefix("Pending: no cluster has 8 free"))
			g.Consistently(check(t, wl, name+"-plimsoll")).WithTimeout(3*time.Second).Should(HavePrefix("Pending"), "nobody waits for its quota")
			h.pending("small", other)
			g.Eventually(func() bool { return *get(t, wl).Spec.Active }).WithTimeout(patience).Should(BeFalse(), "it sleeps, so that Kueue looks at others")
			d, err := dispatch.Decode(get(t, wl).Annotations)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(d.Yields).To(Equal(1))
			g.Expect(d.SleepsUntil.IsZero()).To(BeFalse(), "whoever leads then must wake it")
		})
	}
}

func TestGivesUpOnlyWhereAsked(t *testing.T) {
	g := NewWithT(t)
	after := int32(2)
	h := newHub(t, "giveup", func(pg *v1alpha1.PlacementGate) { pg.Spec.WhenUnplaceable.GiveUpAfterSeconds = &after })
	h.connect(g, "giveup-1", "giveup-2")
	fleet.set(map[string]*measured{"giveup-1": {0, 4, 4, 64}, "giveup-2": {0, 6, 6, 64}})
	wl := h.gated("big", 1)
	g.Eventually(check(t, wl, "giveup-plimsoll")).WithTimeout(patience).Should(HavePrefix("Rejected: gave up: no cluster has 8 free"))
}

// Kueue adds the checks long before it reserves quota. Only a workload that holds
// quota waits for a place.
func TestQueueingForQuotaIsNoWaitForAPlace(t *testing.T) {
	g := NewWithT(t)
	hour := int32(3600)
	h := newHub(t, "queued", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, GiveUpAfterSeconds: &hour}
	})
	h.connect(g, "queued-1", "queued-2")
	fleet.set(map[string]*measured{"queued-1": {0, 4, 4, 64}, "queued-2": {0, 6, 6, 64}})
	h.clusterQueue, h.queued = "queued", 2*time.Hour
	h.queue("gpu", "queued", "")
	h.pending("small", "gpu")
	wl := h.gated("big", 1)
	g.Eventually(check(t, wl, "queued-plimsoll")).WithTimeout(patience).Should(ContainSubstring("no cluster has 8 free"))
	g.Consistently(check(t, wl, "queued-plimsoll")).WithTimeout(3*time.Second).Should(HavePrefix("Pending: no cluster"), "it has had quota for a moment")
	g.Expect(get(t, wl).Spec.Active).To(HaveValue(BeTrue()), "and owes none of it to others yet")
}

func TestOnStale(t *testing.T) {
	for name, tc := range map[string]struct {
		mode v1alpha1.StaleMode
		want string
	}{
		"stale-closed": {v1alpha1.StaleClosed, "^Pending: no cluster can take it; stale-closed-1 has samples older than 2m0s, stale-closed-2 has samples older than 2m0s$"},
		"stale-open":   {v1alpha1.StaleOpen, "^Ready: stale-open-2 may take it: nothing is known of any cluster, and onStale is Open$"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHub(t, name, func(pg *v1alpha1.PlacementGate) {
				pg.Spec.Freshness.OnStale, pg.Spec.PeriodSeconds = tc.mode, 3600
				pg.Spec.Policies = []v1alpha1.GatePolicy{{Policy: "fleet", Score: "total", Use: v1alpha1.UsePrefer}}
			})
			h.connect(g, name+"-1", name+"-2")
			h.publish(name+"-1", 10)
			h.publish(name+"-2", 90)
			g.Eventually(condition(t, name, "ScoresFound")).WithTimeout(patience).Should(HavePrefix("True"))
			fleet.set(map[string]*measured{name + "-1": {1, 8, 8, 64}, name + "-2": {0, 0, 0, 64}})
			fleet.with(func(m *metrics) { m.at = time.Now().Add(-10 * time.Minute) })
			wl := h.gated("job", 1)
			g.Eventually(check(t, wl, name+"-plimsoll")).WithTimeout(patience).Should(MatchRegexp(tc.want))
		})
	}
}

func TestHeldAnswersOutliveTheSource(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "held", nil)
	h.connect(g, "held-1", "held-2")
	fleet.set(map[string]*measured{"held-1": {2, 16, 8, 64}, "held-2": {0, 0, 0, 64}})
	g.Eventually(nominated(t, h.gated("before", 1))).WithTimeout(patience).Should(Equal([]string{"held-1"}))
	fleet.with(func(m *metrics) { m.err = errors.New("connection refused") })
	g.Eventually(nominated(t, h.gated("during", 1))).WithTimeout(patience).Should(Equal([]string{"held-1"}), "the samples are young enough")
	wl := h.gated("full", 1)
	g.Eventually(check(t, wl, "held-plimsoll")).WithTimeout(patience).Should(
		And(HavePrefix("Pending: no cluster has room for 1 pod of 8"), HaveSuffix("connection refused")), "and what was sent meanwhile counts")
	answered := condition(t, "held", v1alpha1.ConditionQueriesSucceeding)
	g.Eventually(answered).WithTimeout(2 * patience).Should(And(HavePrefix("False Unanswered: not answered since "), HaveSuffix("sampleTime: connection refused")))
	fleet.with(func(m *metrics) { m.err = nil })
	g.Eventually(answered).WithTimeout(2 * patience).Should(HavePrefix("True"))
}

// The samples of the fleet are as good as ever, but nobody answers whether it is frozen.
func TestFleetConditionThatNobodyAnswers(t *testing.T) {
	const freeze = `fleet_is_not_frozen`
	for name, tc := range map[string]struct {
		mode v1alpha1.StaleMode
		want string
	}{
		"unanswered-closed": {v1alpha1.StaleClosed, "Pending: waits for an answer to condition freeze; conditions/freeze: too heavy"},
		"unanswered-open":   {v1alpha1.StaleOpen, "Ready: unanswered-open-1 can take it: room for 9 such pods there, as far as its queue has quota (QuotaUnknown), nobody answers condition freeze, and onStale is Open"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHub(t, name, func(pg *v1alpha1.PlacementGate) {
				pg.Spec.Freshness.OnStale, pg.Spec.Freshness.MaxSampleAgeSeconds, pg.Spec.Freshness.UnknownAfterSeconds = tc.mode, 5, 8
				pg.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 1}
				pg.Spec.Conditions = []v1alpha1.GateCondition{{Name: "freeze", Query: freeze, Scope: v1alpha1.ScopeFleet}}
			})
			h.connect(g, name+"-1", name+"-2")
			fleet.set(map[string]*measured{name + "-1": {9, 72, 8, 72}, name + "-2": {0, 0, 0, 64}})
			fleet.with(func(m *metrics) { m.fails = freeze })
			h.clusterQueue = name
			h.queue("gpu", name, "")
			h.pending("small", "gpu")
			wl := h.gated("job", 1)
			g.Eventually(check(t, wl, name+"-plimsoll")).WithTimeout(2 * patience).Should(Equal(tc.want))
			g.Consistently(func() *bool { return get(t, wl).Spec.Active }).WithTimeout(3*time.Second).Should(HaveValue(BeTrue()), "an outage is no reason to yield")
		})
	}
}

func TestWidensByOne(t *testing.T) {
	g := NewWithT(t)
	one := int32(1)
	h := newHub(t, "byone", func(pg *v1alpha1.PlacementGate) { pg.Spec.Widen = v1alpha1.Widen{AfterSeconds: 2, By: &one} })
	h.redecide("byone-1", "byone-2", "byone-3", "byone-4")
	h.connect(g, "byone-1", "byone-2", "byone-3", "byone-4")
	fleet.set(map[string]*measured{"byone-1": {4, 32, 8, 64}, "byone-2": {3, 24, 8, 64}, "byone-3": {2, 16, 8, 64}, "byone-4": {0, 0, 0, 64}})
	wl := h.gated("slow", 1)
	for _, n := range []int{1, 2, 3} {
		g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(HaveLen(n))
	}
	g.Expect(nominated(t, wl)()).To(ConsistOf("byone-1", "byone-2", "byone-3"), "the full one comes last")
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(HaveLen(4), "in the end every active one is tried")
}

func TestPoliciesRequireAndPrefer(t *testing.T) {
	g := NewWithT(t)
	minimum, narrow := int32(50), int32(20)
	h := newHub(t, "tiers", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.PeriodSeconds, pg.Spec.TierPoints = 3600, &narrow
		pg.Spec.Policies = []v1alpha1.GatePolicy{{Policy: "fleet", Score: "total", Use: v1alpha1.UsePrefer}, {Policy: "fleet", Score: "total", Use: v1alpha1.UseRequire, Minimum: &minimum}}
	})
	h.connect(g, "tiers-1", "tiers-2")
	h.publish("tiers-1", 30)
	h.publish("tiers-2", 40)
	g.Eventually(condition(t, "tiers", "ScoresFound")).WithTimeout(patience).Should(HavePrefix("True"))
	fleet.set(map[string]*measured{"tiers-1": {9, 72, 8, 64}, "tiers-2": {2, 16, 8, 64}})
	wl := h.gated("first", 1)
	g.Eventually(check(t, wl, "tiers-plimsoll")).WithTimeout(patience).Should(
		Equal("Pending: no cluster can take it; tiers-1 is below the minimum of fleet/total, tiers-2 is below the minimum of fleet/total"))
	h.publish("tiers-1", 60)
	h.publish("tiers-2", 81)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"tiers-2"}), "a better score wakes it, long before the period; 21 points are another tier")
	h.publish("tiers-1", 61)
	g.Eventually(func() int32 {
		pg := &v1alpha1.PlacementGate{}
		_ = api.Get(t.Context(), client.ObjectKey{Name: "tiers"}, pg)
		return pg.Status.Candidates
	}).WithTimeout(patience).Should(BeEquivalentTo(2))
	i := 0
	g.Eventually(func() []string {
		i++
		next := h.gated("second-"+string(rune('a'+i)), 1)
		g.Eventually(nominated(t, next)).WithTimeout(patience).Should(HaveLen(1))
		return nominated(t, next)()
	}).WithTimeout(patience).Should(Equal([]string{"tiers-1"}), "20 points are the same tier, where room decides")
}

func TestConditionsOfClusterAndFleet(t *testing.T) {
	g := NewWithT(t)
	const power, budget = `sum by (cluster) (power_ok{namespace="terms"})`, `sum by (cluster) (budget)`
	h := newHub(t, "terms", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Conditions = []v1alpha1.GateCondition{
			{Name: "power", Query: `sum by (cluster) (power_ok{namespace="$namespace"})`, Scope: v1alpha1.ScopeCluster},
			{Name: "budget", Query: budget, Scope: v1alpha1.ScopeFleet}}
	})
	h.connect(g, "terms-1", "terms-2")
	fleet.set(map[string]*measured{"terms-1": {1, 8, 8, 64}, "terms-2": {1, 8, 8, 64}})
	fleet.with(func(m *metrics) { m.conditions = map[string][]string{power: nil, budget: nil} })
	wl := h.gated("job", 1)
	g.Eventually(check(t, wl, "terms-plimsoll")).WithTimeout(patience).Should(Equal("Pending: waits for condition budget"))
	fleet.with(func(m *metrics) { m.conditions[budget] = []string{"terms-1"} })
	g.Eventually(check(t, wl, "terms-plimsoll")).WithTimeout(patience).Should(
		Equal("Pending: no cluster can take it; terms-1 does not meet condition power, terms-2 does not meet condition power"))
	fleet.with(func(m *metrics) { m.conditions[power] = []string{"terms-2"} })
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"terms-2"}))
}

// An eviction clears nominations; the workload's own record of them must survive.
func TestAttemptsSurviveAnEviction(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "again", nil)
	h.connect(g, "again-1", "again-2")
	fleet.set(map[string]*measured{"again-1": {1, 8, 8, 64}, "again-2": {0, 0, 0, 64}})
	wl := h.gated("job", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"again-1"}))
	reset := func(held bool) {
		h.asKueue(wl, func(s *kueue.WorkloadStatus) {
			s.NominatedClusterNames = nil
			status := metav1.ConditionFalse
			if held {
				status = metav1.ConditionTrue
			}
			apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: status, Reason: "Test"})
			for i := range s.AdmissionChecks {
				s.AdmissionChecks[i].State, s.AdmissionChecks[i].LastTransitionTime = kueue.CheckStatePending, metav1.Now()
			}
		})
	}
	reset(false)
	reset(true)
	g.Eventually(func() dispatch.Record {
		d, err := dispatch.Decode(get(t, wl).Annotations)
		g.Expect(err).NotTo(HaveOccurred())
		return d
	}).WithTimeout(patience).Should(And(HaveField("Attempt", 2), HaveField("Ever", ContainElement("again-1"))))
}
