package placementgate

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func newCheck(name, gateName string) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "PlacementGate", Name: gateName}}}
}

// newQueue returns a queue with a check that has quota for GPUs, CPU and a resource that the exporter does not measure.
func newQueue(check, quota string, preemption *kueue.ClusterQueuePreemption) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: kueue.ClusterQueueSpec{Preemption: preemption,
		ResourceGroups: []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("1")}, {Name: "rdma/hca", NominalQuota: resource.MustParse("1")},
			{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse(quota)}}}}}}}}
	if check != "" {
		q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(check)}}}
	}
	return q
}

func TestPreemptionGated(t *testing.T) {
	within := &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyNever}
	reclaims := &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
	never := &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyNever, ReclaimWithinCohort: kueue.PreemptionPolicyNever}
	sampled := func(devices float64) gate.Candidate {
		return gate.Candidate{SampledAt: now, Shapes: []gate.ShapeMetrics{{Capacity: gate.Known(devices)}}}
	}
	unsampled := gate.Candidate{Shapes: make([]gate.ShapeMetrics, 1)}
	const noPreemption = "no queue with the gate's check preempts"
	const notMeasured = "ClusterQueue q preempts, and whether its quota of 65 nvidia.com/gpu (flavor h100) exceeds the devices is not known before a job that permits all models of the flavor was decided, with samples of each cluster"
	below := func(quota string) string {
		return "ClusterQueue q preempts, and its quota of " + quota + " nvidia.com/gpu (flavor h100) does not exceed the 64 on the clusters: " +
			"Kueue may preempt running jobs for one that fits nowhere; raise the quota above the devices, remove spec.preemption, or let the gate decide first (config/gate-first)"
	}
	measured := []gate.Candidate{sampled(24), sampled(40)}
	for _, tc := range []struct {
		name     string
		queue    *kueue.ClusterQueue
		clusters []gate.Candidate // of a decision
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		{"quota of the devices", newQueue("plimsoll", "64", within), measured, "False", "QuotaBelowDevices", below("64")},
		{"quota below the devices, reclaimed from the cohort", newQueue("plimsoll", "8", reclaims), measured, "False", "QuotaBelowDevices", below("8")},
		{"quota above the devices", newQueue("plimsoll", "65", within), measured, "True", "QuotaAboveDevices",
			"the quota of each queue that preempts exceeds the devices on the gate's clusters"},
		{"no decision yet", newQueue("plimsoll", "65", within), nil, "Unknown", "DevicesNotMeasured", notMeasured},
		{"a cluster has no samples", newQueue("plimsoll", "65", within), append(measured, unsampled), "Unknown", "DevicesNotMeasured", notMeasured},
		{"a cluster has no samples, and the others have enough devices", newQueue("plimsoll", "64", within), append(measured, unsampled), "False", "QuotaBelowDevices", below("64")},
		{"no policy", newQueue("plimsoll", "64", nil), measured, "True", "NoPreemption", noPreemption},
		{"policies that preempt nothing", newQueue("plimsoll", "64", never), measured, "True", "NoPreemption", noPreemption},
		{"no quota", newQueue("plimsoll", "0", within), measured, "True", "NoPreemption", noPreemption},
		{"check of another gate", newQueue("other", "64", within), measured, "True", "NoPreemption", noPreemption},
		{"no check", newQueue("", "64", within), measured, "True", "NoPreemption", noPreemption},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := now
			r, hub := newReconciler(t, &clock, interceptor.Funcs{}, append(healthyHub("c1", "c2"), newCheck("plimsoll", "gpu"), newCheck("other", "batch"), tc.queue)...)
			reconcileGate := func() {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
					t.Fatal(err)
				}
			}
			reconcileGate()
			if tc.clusters != nil {
				r.opts.Registry.SetDevices("gpu", shape.Facts{ClusterQueue: "q", PodSets: []shape.PodSet{{Resource: "nvidia.com/gpu", Flavor: "h100"}}}, tc.clusters)
			}
			reconcileGate()
			g := newGate()
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
				t.Fatal(err)
			}
			c := apimeta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionPreemptionGated)
			if c == nil || c.Status != tc.status || c.Reason != tc.reason || c.Message != tc.message {
				t.Errorf("got %+v", c)
			}
		})
	}
}
