package placementgate

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
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

// newGateFirstPolicy is a policy like that of config/gate-first.
func newGateFirstPolicy() []client.Object {
	name := metav1.ObjectMeta{Name: "gate-first"}
	workloads := admissionv1.NamedRuleWithOperations{}
	workloads.APIGroups, workloads.Resources = []string{"kueue.x-k8s.io"}, []string{"workloads"}
	mutation := admissionv1.Mutation{ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: "Object{metadata: Object.metadata{annotations: {'" + v1alpha1.GateFirst + "': 'true'}}}"}}
	return []client.Object{
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.MutatingAdmissionPolicySpec{Mutations: []admissionv1.Mutation{mutation},
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{workloads}}}},
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name.Name}},
	}
}

func newLocalQueue(namespace, gateFirst string) *kueue.LocalQueue {
	return &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gpu", Labels: map[string]string{v1alpha1.GateFirst: gateFirst}}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}}
}

func TestPreemptionGated(t *testing.T) {
	within := &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyNever}
	reclaims := &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
	never := &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyNever, ReclaimWithinCohort: kueue.PreemptionPolicyNever}
	sampled := func(devices float64) gate.Candidate {
		return gate.Candidate{SampledAt: now, Shapes: []gate.ShapeMetrics{{Capacity: gate.Known(devices)}}}
	}
	unsampled := gate.Candidate{Shapes: make([]gate.ShapeMetrics, 1)}
	const noPreemption = "no queue with the gate's check preempts before the gate decides"
	const notMeasured = "ClusterQueue q preempts, and whether its quota of 65 nvidia.com/gpu (flavor h100) exceeds the devices is not known before a job that permits all models of the flavor was decided, with samples of each cluster"
	below := func(quota string) string {
		return "ClusterQueue q preempts, and its quota of " + quota + " nvidia.com/gpu (flavor h100) does not exceed the 64 on the clusters: " +
			"Kueue may preempt running jobs for one that fits nowhere; raise the quota above the devices, remove spec.preemption, or let the gate decide first in all its LocalQueues (config/gate-first)"
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
			"the quota of each queue that preempts before the gate decides exceeds the devices on the gate's clusters"},
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

// A queue preempts nothing in vain if the gate decides first in all its LocalQueues, which it does in mode Enforce only.
func TestQueuesDecidedFirst(t *testing.T) {
	within := &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	enforced, shadowed := newGate(), newGate()
	shadowed.Spec.Mode = v1alpha1.ModeShadow
	for _, tc := range []struct {
		name   string
		gate   *v1alpha1.PlacementGate
		labels [2]string // of the LocalQueues
		want   int
	}{
		{"none", enforced, [2]string{"", ""}, 1},
		{"one LocalQueue", enforced, [2]string{"true", ""}, 1},
		{"all LocalQueues", enforced, [2]string{"true", "true"}, 0},
		{"all LocalQueues, mode Shadow", shadowed, [2]string{"true", "true"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := now
			r, _ := newReconciler(t, &clock, interceptor.Funcs{}, append(newGateFirstPolicy(), newCheck("plimsoll", "gpu"), newQueue("plimsoll", "64", within),
				newLocalQueue("team-a", tc.labels[0]), newLocalQueue("team-b", tc.labels[1]))...)
			if got, err := r.gatherPreemptingQuotas(t.Context(), tc.gate); err != nil || len(got) != tc.want {
				t.Errorf("%d quotas, error %v, want %d", len(got), err, tc.want)
			}
		})
	}
}
