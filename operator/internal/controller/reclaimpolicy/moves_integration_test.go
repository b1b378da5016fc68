//go:build integration

package reclaimpolicy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// A real API server accepts what the controller writes about moves: the status in mode Shadow, and the
// deactivation in mode Enforce. Moves have the mode of the policy, if they have none of their own.
func TestRebalanceOnAnAPIServer(t *testing.T) {
	big := workload("big")
	gates := &stuckGates{}
	hub, sources := startController(t, gates)
	g := gomega.NewWithT(t)
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, query.QuerierFunc(respond))
	createFleet(t, hub)
	wl := createRunning(t, hub)
	createWaiting(t, hub, big)
	gates.hold(big)
	policy := &v1alpha1.ReclaimPolicy{ObjectMeta: metav1.ObjectMeta{Name: "rebalance"}, Spec: v1alpha1.ReclaimPolicySpec{
		SourceRef: v1alpha1.LocalReference{Name: "thanos"}, ClusterQueues: []string{"research"}, PeriodSeconds: 10, Mode: v1alpha1.ModeShadow, Rebalance: &v1alpha1.Rebalance{}}}
	g.Expect(hub.Create(t.Context(), policy)).To(gomega.Succeed())
	g.Expect(policy.Spec.Rebalance.Mode).To(gomega.BeEmpty())
	status := func() (v1alpha1.ReclaimPolicyStatus, error) {
		err := hub.Get(t.Context(), client.ObjectKeyFromObject(policy), policy)
		return policy.Status, err
	}
	g.Eventually(status, 30*time.Second, 100*time.Millisecond).Should(gomega.HaveField("History", gomega.HaveLen(1)))
	g.Expect(policy.Status.Moves).To(gomega.HaveLen(1))
	g.Expect(policy.Status.History[0].Move).To(gomega.HaveField("To", "c2"))
	g.Expect(hub.Get(t.Context(), client.ObjectKeyFromObject(wl), wl)).To(gomega.Succeed())
	g.Expect(wl.Annotations).NotTo(gomega.HaveKey(v1alpha1.DispatchAnnotation))

	before := policy.DeepCopy()
	policy.Spec.Rebalance.Mode = v1alpha1.ModeEnforce
	g.Expect(hub.Patch(t.Context(), policy, client.MergeFrom(before))).To(gomega.Succeed())
	g.Eventually(func() (*bool, error) {
		err := hub.Get(t.Context(), client.ObjectKeyFromObject(wl), wl)
		return wl.Spec.Active, err
	}, 30*time.Second, 100*time.Millisecond).Should(gomega.HaveValue(gomega.BeFalse()))
	record, err := dispatch.Decode(wl.Annotations)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(record.Avoided(time.Now())).To(gomega.ConsistOf(gomega.And(gomega.HaveField("Cluster", "c1"), gomega.HaveField("Why", "was left for default/job-big"))))
	g.Eventually(status, 30*time.Second, 100*time.Millisecond).Should(gomega.HaveField("History", gomega.HaveLen(2)))
}

// respond is the source: train holds one of the 8 GPUs of n1, and none is idle.
func respond(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	node := map[string]string{"cluster": "c1", "node": "n1", "model": "H100", "resource": "nvidia.com/gpu"}
	switch {
	case strings.Contains(expr, "plimsoll_free_devices"):
		return query.Result{Samples: []query.Sample{{Labels: node, Value: 7}}}, nil
	case strings.Contains(expr, "plimsoll_allocation"):
		node["namespace"], node["owner_kind"], node["owner_name"] = "default", "Job", "train"
		return query.Result{Samples: []query.Sample{{Labels: node, Value: 1}}}, nil
	case strings.Contains(expr, "idle_since"):
		return query.Result{}, nil
	}
	return query.Result{Samples: []query.Sample{{Labels: map[string]string{"cluster": "c1"}, Value: 5}}}, nil
}

// createWaiting creates a Workload of a higher priority that has quota and waits at the gate.
func createWaiting(t *testing.T, hub client.Client, wl *kueue.Workload) {
	t.Helper()
	g := gomega.NewWithT(t)
	wl.Spec.Priority = new(int32(10))
	g.Expect(hub.Create(t.Context(), wl)).To(gomega.Succeed())
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "research", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
	g.Expect(hub.Status().Update(t.Context(), wl)).To(gomega.Succeed())
}

// stuckGates hold c1, whose node of 8 GPUs lacks one, for a workload. c2 has 4 GPUs free.
type stuckGates struct{ ledger *ledger.Ledger }

func (s *stuckGates) hold(wl *kueue.Workload) {
	l := ledger.New(15*time.Second, 10*time.Minute)
	d := inputsOf(l, string(wl.UID), wl.Name).Decide(time.Now())
	l.Commit(l.View(), string(wl.UID), nil, nil, d.Hold)
	s.ledger = l
}

func (s *stuckGates) Holds() []ledger.Hold { return s.ledger.View().Holds() }

func (s *stuckGates) Inputs(_ context.Context, key client.ObjectKey) (*gate.Inputs, string, error) {
	uid := ""
	if key.Name == "job-big" {
		uid = s.Holds()[0].UID
	}
	return inputsOf(s.ledger, uid, key.Name), "", nil
}

func inputsOf(l *ledger.Ledger, uid, name string) *gate.Inputs {
	p, priority, fits := shape.PodSet{Name: "main", Resource: "nvidia.com/gpu", Model: "H100", DevicesPerPod: 8, Pods: 1}, int32(10), []float64{0, 0}
	if name != "job-big" {
		p.DevicesPerPod, priority, fits = 1, 0, []float64{7, 4}
	}
	in := &gate.Inputs{Facts: shape.Facts{UID: uid, Namespace: "default", Name: name, ClusterQueue: "research", Remote: true, PodSets: []shape.PodSet{p}},
		View: l.View(), Source: "thanos", Rules: gate.RulesOf(&v1alpha1.PlacementGateSpec{})}
	in.Rules.Hold.Gate, in.Rules.Rank = "gpu", ledger.Rank{Priority: priority, Since: time.Now().Add(-time.Hour), Name: name}
	for i, cluster := range []string{"c1", "c2"} {
		in.Candidates = append(in.Candidates, gate.Candidate{Name: cluster, SampledAt: time.Now().Add(-5 * time.Second), Shapes: []gate.ShapeMetrics{{
			Fit: gate.Known(fits[i]), EmptyFit: gate.Known(float64(1 - i)), Headroom: gate.Known(7), Capacity: gate.Known(8), Quota: gate.Known(64)}}})
	}
	return in
}
