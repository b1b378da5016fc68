//go:build integration

package workload_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestExplainReportsWriteTimeOfScores(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "scores", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UsePrefer}}
	})
	tg.connect("scores-1", "scores-2")
	fleet.reset(map[string]*clusterMetrics{"scores-1": {0, 4, 4, 64}, "scores-2": {0, 4, 4, 64}})
	before := time.Now().Truncate(time.Second)
	tg.publishScore("scores-1", 80)
	wl := tg.submitGated("big", 1)
	g.Eventually(func() gate.Score {
		e := explain(t, reconciler, wl)()
		if len(e.Clusters) == 0 {
			return gate.Score{}
		}
		return e.Clusters[0].Scores["fleet/total"]
	}).Should(And(HaveField("Value", int32(80)), HaveField("Written", BeTemporally(">=", before))))
}

func TestExplainUngatedWorkload(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "bare", nil)
	wl := tg.submit("job", 1, tg.multiKueueCheck())
	g.Eventually(explain(t, reconciler, wl)).Should(HaveField("WaitsFor", "a cluster of MultiKueueConfig bare that Kueue is connected to"))
	tg.connect("bare-1", "bare-2")
	g.Eventually(explain(t, reconciler, wl)).Should(HaveField("WaitsFor", "admission by one of bare-1, bare-2"))
}

// The registry of a replica that is not the leader is empty. The explanation says so, and does
// not claim that the gate does not exist.
func TestExplainOnFollower(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "follower", nil)
	tg.connect("follower-1", "follower-2")
	fleet.reset(map[string]*clusterMetrics{"follower-1": {0, 4, 4, 64}, "follower-2": {0, 6, 6, 64}})
	wl := tg.submitGated("big", 1)
	g.Eventually(checkState(t, wl, tg.gateCheck())).Should(HavePrefix("Pending: " + noNodeLargeEnough))

	leader, seconds, now := "another", int32(3600), metav1.NowMicro()
	tg.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "leader"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &leader, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now}})
	skipNameValidation := true
	mgr, err := ctrl.NewManager(sharedConfig, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "leader", LeaderElectionNamespace: "default", Controller: config.Controller{SkipNameValidation: &skipNameValidation}})
	g.Expect(err).NotTo(HaveOccurred())
	follower, err := workload.Setup(mgr, workload.Options{Registry: gatestate.New(), Ledger: ledger.New(time.Second, time.Hour), Sources: &query.Sources{}, Nominate: true})
	g.Expect(err).NotTo(HaveOccurred())
	go func() { _ = mgr.Start(t.Context()) }()
	g.Expect(mgr.GetCache().WaitForCacheSync(t.Context())).To(BeTrue())
	g.Eventually(explain(t, follower, wl)).Should(And(
		HaveField("Follower", true), HaveField("WaitsFor", HavePrefix(noNodeLargeEnough)), HaveField("Problem", ContainSubstring(notLeader))))
}
