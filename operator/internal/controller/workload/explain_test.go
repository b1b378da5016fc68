//go:build integration

package workload_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

func explained(t *testing.T, r *workload.Reconciler, wl *kueue.Workload) func() *gate.Explanation {
	return func() *gate.Explanation {
		e, err := r.Explain(t.Context(), client.ObjectKeyFromObject(wl))
		if err != nil {
			return &gate.Explanation{Problem: err.Error()}
		}
		return e
	}
}

// why a cluster is in or out.
func why(t *testing.T, wl *kueue.Workload, cluster string) func() string {
	return func() string {
		e := explained(t, served, wl)()
		for _, c := range e.Clusters {
			if c.Cluster == cluster {
				return c.Why
			}
		}
		return e.Problem
	}
}

func TestExplainTellsTheAgeOfScores(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "scores", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Policies = []v1alpha1.GatePolicy{{Policy: "fleet", Score: "total", Use: v1alpha1.UsePrefer}}
	})
	h.connect(g, "scores-1", "scores-2")
	fleet.set(map[string]*measured{"scores-1": {0, 4, 4, 64}, "scores-2": {0, 4, 4, 64}})
	before := time.Now().Truncate(time.Second)
	h.publish("scores-1", 80)
	wl := h.gated("big", 1)
	g.Eventually(func() gate.Score {
		e := explained(t, served, wl)()
		if len(e.Clusters) == 0 {
			return gate.Score{}
		}
		return e.Clusters[0].Scores["fleet/total"]
	}).WithTimeout(patience).Should(And(HaveField("Value", int32(80)), HaveField("WrittenAt", BeTemporally(">=", before))))
}

func TestExplainOfAnUngatedWorkload(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "bare", nil)
	wl := h.submit("job", 1, "bare-multikueue")
	g.Eventually(func() string { return explained(t, served, wl)().WaitsFor }).WithTimeout(patience).Should(
		Equal("a cluster of MultiKueueConfig bare that Kueue is connected to"))
	h.connect(g, "bare-1", "bare-2")
	g.Eventually(func() string { return explained(t, served, wl)().WaitsFor }).WithTimeout(patience).Should(Equal("one of bare-1, bare-2 to admit it"))
}

// A replica that does not lead has no gates on its board. It says so rather than
// that they do not exist.
func TestExplainOfAReplicaThatDoesNotLead(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "follower", nil)
	h.connect(g, "follower-1", "follower-2")
	fleet.set(map[string]*measured{"follower-1": {0, 4, 4, 64}, "follower-2": {0, 6, 6, 64}})
	wl := h.gated("big", 1)
	g.Eventually(check(t, wl, "follower-plimsoll")).WithTimeout(patience).Should(HavePrefix("Pending: no cluster has 8 free"))

	leader, seconds, now := "another", int32(3600), metav1.NowMicro()
	h.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &leader, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now}})
	again := true
	mgr, err := ctrl.NewManager(hubConfig, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "held", LeaderElectionNamespace: "default", Controller: config.Controller{SkipNameValidation: &again}})
	g.Expect(err).NotTo(HaveOccurred())
	follower, err := workload.Setup(mgr, workload.Options{Registry: registry.New(), Ledger: ledger.New(time.Second, time.Hour), Sources: &query.Sources{}, Nominate: true})
	g.Expect(err).NotTo(HaveOccurred())
	go func() { _ = mgr.Start(t.Context()) }()
	g.Expect(mgr.GetCache().WaitForCacheSync(t.Context())).To(BeTrue())
	g.Eventually(explained(t, follower, wl)).WithTimeout(patience).Should(And(
		HaveField("WaitsFor", HavePrefix("no cluster has 8 free")), HaveField("Problem", ContainSubstring("does not lead"))))
}
