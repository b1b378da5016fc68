//go:build integration

package workload_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

func TestWaitsForRoomThenNominates(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "room", nil)
	tg.connect("room-1", "room-2")
	fleet.reset(map[string]*clusterMetrics{"room-1": {0, 20, 4, 64}, "room-2": {0, 12, 6, 64}})
	wl := tg.submitGated("big", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Pending: " + nodeTooSmall("room-2", 6)))
	g.Expect(nominatedClusters(t, wl)()).To(BeEmpty())

	response := httptest.NewRecorder()
	reconciler.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/explain/workload/room/big", nil))
	var e gate.Explanation
	g.Expect(json.Unmarshal(response.Body.Bytes(), &e)).To(Succeed(), response.Body.String())
	g.Expect(e.WaitsFor).To(Equal(nodeTooSmall("room-2", 6)))
	g.Expect(e.Clusters).To(HaveLen(2))

	fleet.reset(map[string]*clusterMetrics{"room-1": {0, 20, 4, 64}, "room-2": {1, 14, 8, 64}})
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"room-2"}))
	live := getWorkload(t, wl)
	g.Expect(checkState(t, wl, tg.gateCheck())()).To(HavePrefix("Ready: " + hasRoom("room-2", 1)))
	g.Expect(kueuestate.HoldsQuota(live)).To(BeTrue(), "a nomination must not remove fields that Kueue owns")
	g.Expect(live.Status.AdmissionChecks).To(HaveLen(2))
	g.Expect(dispatchRecord(t, wl)()).To(And(HaveField("Attempt", 1), HaveField("Nominated", []string{"room-2"})))

	decision := hasRoom("room-2", 1) + quotaUnknown
	g.Eventually(eventsOf(t, wl)).Should(ContainElements("NoRoom: "+nodeTooSmall("room-2", 6),
		"Placeable: "+decision, "Nominated: "+nominatedMessage("room-2", decision)))

	cluster := "room-2"
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) { s.NominatedClusterNames, s.ClusterName = nil, &cluster })
	g.Expect(getWorkload(t, wl).Status.NominatedClusterNames).To(BeEmpty(), "Kueue must be able to clear the gate's nominations")
}

func TestSpreadsBurstOverClusters(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "burst", nil)
	tg.connect("burst-1", "burst-2")
	fleet.reset(map[string]*clusterMetrics{"burst-1": {5, 40, 8, 40}, "burst-2": {5, 40, 8, 40}})
	var workloads []*kueue.Workload
	for i := range 10 {
		workloads = append(workloads, tg.submitGated(fmt.Sprintf("job-%d", i), 1))
	}
	g.Eventually(func() map[string]int {
		nominations := map[string]int{}
		for _, wl := range workloads {
			for _, c := range nominatedClusters(t, wl)() {
				nominations[c]++
			}
		}
		return nominations
	}).Should(Equal(map[string]int{"burst-1": 5, "burst-2": 5}))
}

func TestMissingScoreRejectsClustersButNotTheCheck(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "noscore", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "totla", Use: v1alpha1.UseRequire}}
	})
	tg.connect("noscore-1", "noscore-2")
	fleet.reset(map[string]*clusterMetrics{"noscore-1": {1, 8, 8, 64}, "noscore-2": {1, 8, 8, 64}})
	wl := tg.submitGated("job", 1)
	g.Eventually(gateCondition(t, "noscore", "ScoresFound")).Should(HavePrefix("False NoSuchScore: "))
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal(
		"Pending: " + noneEligible + "; " + noScore("noscore-1", "fleet/totla") + ", " + noScore("noscore-2", "fleet/totla")))
	g.Expect(checkActive(t, "noscore")()).To(HavePrefix("True Active"), "a missing score must not stop the queue")
}

func TestWorkerQuotaLimitsRoom(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "quota", nil)
	tg.connect("quota-1", "quota-2")
	fleet.reset(map[string]*clusterMetrics{"quota-1": {4, 32, 8, 64}, "quota-2": {4, 32, 8, 64}})
	fleet.update(func(p *fakePrometheus) {
		p.unreservedQuota, p.withQuotaMetrics = map[string]float64{"quota-2": 15}, []string{"quota-1", "quota-2"}
	})
	wl := tg.submitGated("job", 2)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Pending: " + noRoomFor2Pods +
		": best is quota-2, whose queue has quota for 1; " + noQuota("quota-1", "gpu", "quota/gpu")))
	g.Consistently(nominatedClusters(t, wl)).WithTimeout(3 * time.Second).Should(BeEmpty())
	fleet.update(func(p *fakePrometheus) { p.unreservedQuota["quota-2"] = 16 })
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"quota-2"}))
	g.Expect(checkState(t, wl, tg.gateCheck())()).To(Equal("Ready: " + hasRoom("quota-2", 2)))
}

// Kueue preempts on the worker. A worker without unreserved quota can therefore admit a workload whose
// queue preempts, if a workload with a lower priority runs there.
func TestPreemptingQueueNeedsQuotaOrVictims(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "prio", nil)
	tg.connect("prio-1", "prio-2")
	tg.workload.clusterQueue = "prio"
	tg.create(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "prio"}, Spec: kueue.ClusterQueueSpec{
		Preemption: &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}}})
	fleet.reset(map[string]*clusterMetrics{"prio-1": {4, 32, 8, 64}, "prio-2": {4, 32, 8, 64}})
	fleet.update(func(p *fakePrometheus) {
		p.unreservedQuota, p.withQuotaMetrics = map[string]float64{"prio-2": 8}, []string{"prio-1", "prio-2"}
	})
	low, cluster := tg.submitGated("low", 1), "prio-2"
	g.Eventually(nominatedClusters(t, low)).Should(Equal([]string{cluster}), "prio-1 has no such queue")
	tg.updateStatus(low, func(s *kueue.WorkloadStatus) {
		s.NominatedClusterNames, s.ClusterName, s.AdmissionChecks[1].State = nil, &cluster, kueue.CheckStateReady
	})
	fleet.update(func(p *fakePrometheus) { p.unreservedQuota[cluster] = 0 })
	equal := tg.submitGated("equal", 1)
	g.Eventually(checkState(t, equal, tg.gateCheck())).Should(HavePrefix("Pending: " + noRoomFor1Pod + ": best is prio-2, whose queue has quota for 0, preemption included"))
	tg.workload.priority = 1
	g.Eventually(nominatedClusters(t, tg.submitGated("high", 1))).Should(Equal([]string{cluster}))
	g.Expect(nominatedClusters(t, equal)()).To(BeEmpty())
}

func TestStaleSamples(t *testing.T) {
	for _, tc := range []struct {
		name string
		mode v1alpha1.StaleMode
		want string
	}{
		{"stale-closed", v1alpha1.StaleClosed, "Pending: " + noneEligible + "; stale-closed-1 " + staleSamples + ", stale-closed-2 " + staleSamples},
		{"stale-open", v1alpha1.StaleOpen, "Ready: stale-open-2" + withoutMetrics},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			tg := newTestGate(t, tc.name, func(pg *v1alpha1.PlacementGate) {
				pg.Spec.Freshness.OnStale, pg.Spec.PeriodSeconds = tc.mode, 3600
				pg.Spec.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UsePrefer}}
			})
			tg.connect(tc.name+"-1", tc.name+"-2")
			tg.publishScore(tc.name+"-2", 90) // first: ScoresFound is True as soon as one score is found
			tg.publishScore(tc.name+"-1", 10)
			g.Eventually(gateCondition(t, tc.name, "ScoresFound")).Should(HavePrefix("True"))
			fleet.reset(map[string]*clusterMetrics{tc.name + "-1": {1, 8, 8, 64}, tc.name + "-2": {0, 0, 0, 64}})
			fleet.update(func(p *fakePrometheus) { p.sampledAt = time.Now().Add(-10 * time.Minute) })
			wl := tg.submitGated("job", 1)
			g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal(tc.want))
		})
	}
}

func TestCachedResultsBridgeSourceOutage(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "outage", nil)
	tg.connect("outage-1", "outage-2")
	fleet.reset(map[string]*clusterMetrics{"outage-1": {2, 16, 8, 64}, "outage-2": {0, 0, 0, 64}})
	g.Eventually(nominatedClusters(t, tg.submitGated("before", 1))).Should(Equal([]string{"outage-1"}))
	fleet.update(func(p *fakePrometheus) { p.err = errors.New("connection refused") })
	g.Eventually(nominatedClusters(t, tg.submitGated("during", 1))).Should(Equal([]string{"outage-1"}), "the cached samples are recent enough")
	wl := tg.submitGated("full", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(
		And(HavePrefix("Pending: "+noRoomFor1Pod), HaveSuffix("connection refused")), "the ledger counts the nominations made during the outage")
	queriesSucceeding := gateCondition(t, "outage", v1alpha1.ConditionQueriesSucceeding)
	g.Eventually(queriesSucceeding).WithTimeout(2 * waitTimeout).Should(And(HavePrefix("False QueriesFailing: "), ContainSubstring("sampleTime"), HaveSuffix("connection refused")))
	fleet.update(func(p *fakePrometheus) { p.err = nil })
	g.Eventually(queriesSucceeding).WithTimeout(2 * waitTimeout).Should(HavePrefix("True"))
}

// The samples of the clusters stay fresh, and only the query of a fleet requirement fails.
func TestFailingFleetRequirement(t *testing.T) {
	const freeze = `fleet_is_not_frozen`
	for _, tc := range []struct {
		name string
		mode v1alpha1.StaleMode
		want string
	}{
		{"failing-closed", v1alpha1.StaleClosed, "Pending: fleet " + requirementWithoutResult("freeze") + "; requirements/freeze: too heavy"},
		{"failing-open", v1alpha1.StaleOpen, "Ready: " + hasRoom("failing-open-1", 9) + quotaUnknown + "; " + requirementWithoutResult("freeze") + " and onStale is Open"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			tg := newTestGate(t, tc.name, func(pg *v1alpha1.PlacementGate) {
				pg.Spec.Freshness.OnStale, pg.Spec.Freshness.MaxSampleAgeSeconds, pg.Spec.Freshness.UnknownAfterSeconds = tc.mode, 5, 8
				pg.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 1}
				pg.Spec.Requirements = []v1alpha1.GateRequirement{{Name: "freeze", Query: freeze, Scope: v1alpha1.ScopeFleet}}
			})
			tg.connect(tc.name+"-1", tc.name+"-2")
			fleet.reset(map[string]*clusterMetrics{tc.name + "-1": {9, 72, 8, 72}, tc.name + "-2": {0, 0, 0, 64}})
			fleet.update(func(p *fakePrometheus) { p.failingQuery = freeze })
			tg.workload.clusterQueue = tc.name
			tg.createQueue("gpu", tc.name, "")
			tg.createPendingWorkload("small", "gpu")
			wl := tg.submitGated("job", 1)
			g.Eventually(checkState(t, wl, tg.gateCheck())).WithTimeout(2 * waitTimeout).Should(Equal(tc.want))
			g.Consistently(isActive(t, wl)).WithTimeout(3*time.Second).Should(HaveValue(BeTrue()), "a workload must not yield because of a failing query")
		})
	}
}

func TestRequiredAndPreferredScores(t *testing.T) {
	g := NewWithT(t)
	minimum, tierPoints := int32(50), int32(20)
	tg := newTestGate(t, "tiers", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.PeriodSeconds, pg.Spec.Advanced.TierPoints = 3600, &tierPoints
		pg.Spec.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UsePrefer}, {ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UseRequire, Minimum: &minimum}}
	})
	tg.connect("tiers-1", "tiers-2")
	tg.publishScore("tiers-1", 30)
	tg.publishScore("tiers-2", 40)
	g.Eventually(gateCondition(t, "tiers", "ScoresFound")).Should(HavePrefix("True"))
	fleet.reset(map[string]*clusterMetrics{"tiers-1": {9, 72, 8, 64}, "tiers-2": {4, 32, 8, 64}})
	wl := tg.submitGated("first", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal(
		"Pending: " + noneEligible + "; " + lowScore("tiers-1", "fleet/total") + ", " + lowScore("tiers-2", "fleet/total")))
	tg.publishScore("tiers-2", 81)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"tiers-2"}), "a changed score triggers a decision before the period ends")
	tg.publishScore("tiers-1", 60)
	// A probe fits nowhere; its first message shows which scores the gate has. Later ones are written less often.
	probes := 0
	g.Eventually(func() string {
		probes++
		probe := tg.submitGated(fmt.Sprintf("probe-%d", probes), 50)
		g.Eventually(checkState(t, probe, tg.gateCheck())).WithTimeout(2 * waitTimeout).Should(ContainSubstring("holds 50 pods"))
		return checkState(t, probe, tg.gateCheck())()
	}).Should(Not(ContainSubstring("fleet/total")))
	wl = tg.submitGated("second", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"tiers-2"}), "21 points are another tier")
	tg.publishScore("tiers-1", 61)
	submitted := 0
	g.Eventually(func() []string {
		submitted++
		next := tg.submitGated(fmt.Sprintf("third-%d", submitted), 1)
		g.Eventually(nominatedClusters(t, next)).Should(HaveLen(1))
		return nominatedClusters(t, next)()
	}).Should(Equal([]string{"tiers-1"}), "20 points are the same tier, in which room decides")
}

func TestClusterAndFleetRequirements(t *testing.T) {
	g := NewWithT(t)
	const power, budget = `sum by (cluster) (power_ok{namespace="conditions"})`, `sum by (cluster) (budget)`
	tg := newTestGate(t, "conditions", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Requirements = []v1alpha1.GateRequirement{
			{Name: "power", Query: strings.ReplaceAll(power, `"conditions"`, `"$namespace"`), Scope: v1alpha1.ScopeCluster},
			{Name: "budget", Query: budget, Scope: v1alpha1.ScopeFleet}}
	})
	tg.connect("conditions-1", "conditions-2")
	fleet.reset(map[string]*clusterMetrics{"conditions-1": {1, 8, 8, 64}, "conditions-2": {1, 8, 8, 64}})
	fleet.update(func(p *fakePrometheus) { p.requirements = map[string][]string{power: nil, budget: nil} })
	wl := tg.submitGated("job", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal("Pending: fleet requirement budget is not met"))
	fleet.update(func(p *fakePrometheus) { p.requirements[budget] = []string{"conditions-1"} })
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(Equal(
		"Pending: " + noneEligible + "; " + requirementAbsent("conditions-1", "power") + ", " + requirementAbsent("conditions-2", "power")))
	fleet.update(func(p *fakePrometheus) { p.requirements[power] = []string{"conditions-2"} })
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"conditions-2"}))
}

func TestDoesNotWriteWithoutQuota(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "noquota", nil)
	tg.connect("noquota-1", "noquota-2")
	fleet.reset(map[string]*clusterMetrics{"noquota-1": {0, 0, 0, 64}, "noquota-2": {0, 0, 0, 64}})
	wl := tg.submitGated("evicted", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Pending: no cluster has"))
	tg.updateStatus(wl, releaseQuota)
	before := resourceVersion(t, wl)()
	fleet.reset(map[string]*clusterMetrics{"noquota-1": {4, 32, 8, 64}, "noquota-2": {4, 32, 8, 64}})
	g.Consistently(resourceVersion(t, wl)).WithTimeout(3 * time.Second).Should(Equal(before))
}
