//go:build integration

package workload_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

const h100 = "NVIDIA-H100-80GB-HBM3"

// testGate is a PlacementGate with everything that its workloads need: a namespace, a
// Placement that decided the clusters NAME-1 and NAME-2, a MetricsSource, and the admission
// checks NAME-plimsoll and NAME-multikueue.
type testGate struct {
	t    *testing.T
	name string
	// workload is how the next workloads are submitted.
	workload workloadTemplate
}

// workloadTemplate is how submit creates a workload. The zero value is a workload of 8 H100 per
// pod in ClusterQueue gpu.
type workloadTemplate struct {
	nodeSelector map[string]string
	annotations  map[string]string
	// clusterQueue that reserved the quota; empty = gpu.
	clusterQueue string
	// flavor that Kueue assigned; empty = h100.
	flavor string
	// devicesPerPod; empty = 8.
	devicesPerPod string
	// checksAge is for how long the checks have been on the workload.
	checksAge time.Duration
	// priority of the workload.
	priority int32
	// changeStatus changes the status before the operator sees quota.
	changeStatus func(*kueue.WorkloadStatus)
}

// newTestGate creates a gate; change may be nil.
func newTestGate(t *testing.T, name string, change func(*v1alpha1.PlacementGate)) *testGate {
	t.Helper()
	tg := &testGate{t: t, name: name}
	tg.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	tg.create(&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "gpu"}})
	tg.create(&clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "gpu-1",
		Labels: map[string]string{clusterv1beta1.PlacementLabel: "gpu"}}})
	tg.setDecisions(name+"-1", name+"-2")
	registerSource(name)
	tg.create(&v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MetricsSourceSpec{URL: "http://127.0.0.1:9"}})
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "h100"},
		Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"nvidia.com/gpu.product": h100}}}
	if err := apiClient.Create(t.Context(), flavor); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	pg := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlacementGateSpec{
		PlacementRef: v1alpha1.NamespacedReference{Namespace: name, Name: "gpu"}, SourceRef: v1alpha1.LocalReference{Name: name},
		PeriodSeconds: 1, MultiKueue: &v1alpha1.GateMultiKueue{ConfigName: name},
	}}
	if change != nil {
		change(pg)
	}
	tg.create(pg)
	tg.createGateCheck(tg.gateCheck())
	tg.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: tg.multiKueueCheck()}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "kueue.x-k8s.io", Kind: "MultiKueueConfig", Name: name}}})
	return tg
}

func (tg *testGate) gateCheck() string       { return tg.name + "-plimsoll" }
func (tg *testGate) multiKueueCheck() string { return tg.name + "-multikueue" }

// createGateCheck creates an admission check that the gate decides.
func (tg *testGate) createGateCheck(name string) {
	tg.t.Helper()
	tg.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: v1alpha1.ControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "PlacementGate", Name: tg.name}}})
}

func (tg *testGate) create(obj client.Object) {
	tg.t.Helper()
	if err := apiClient.Create(tg.t.Context(), obj); err != nil {
		tg.t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
}

// retry repeats an update until no conflict occurs.
func (tg *testGate) retry(update func() error) {
	tg.t.Helper()
	NewWithT(tg.t).Eventually(update).Should(Succeed())
}

// setDecisions replaces the clusters that the Placement decided.
func (tg *testGate) setDecisions(clusters ...string) {
	tg.t.Helper()
	tg.retry(func() error {
		d := &clusterv1beta1.PlacementDecision{}
		if err := apiClient.Get(tg.t.Context(), client.ObjectKey{Namespace: tg.name, Name: "gpu-1"}, d); err != nil {
			return err
		}
		d.Status.Decisions = []clusterv1beta1.ClusterDecision{}
		for _, c := range clusters {
			d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: c})
		}
		return apiClient.Status().Update(tg.t.Context(), d)
	})
}

// updateGate edits the PlacementGate.
func (tg *testGate) updateGate(edit func(*v1alpha1.PlacementGate)) {
	tg.t.Helper()
	tg.retry(func() error {
		pg := &v1alpha1.PlacementGate{}
		if err := apiClient.Get(tg.t.Context(), client.ObjectKey{Name: tg.name}, pg); err != nil {
			return err
		}
		edit(pg)
		return apiClient.Update(tg.t.Context(), pg)
	})
}

func (tg *testGate) deleteGate() {
	tg.t.Helper()
	if err := apiClient.Delete(tg.t.Context(), &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: tg.name}}); err != nil {
		tg.t.Fatal(err)
	}
}

// setMultiKueueConfig names another MultiKueueConfig in the MultiKueue check.
func (tg *testGate) setMultiKueueConfig(config string) {
	tg.t.Helper()
	tg.retry(func() error {
		c := &kueue.AdmissionCheck{}
		if err := apiClient.Get(tg.t.Context(), client.ObjectKey{Name: tg.multiKueueCheck()}, c); err != nil {
			return err
		}
		c.Spec.Parameters.Name = config
		return apiClient.Update(tg.t.Context(), c)
	})
}

// setConfigOwner labels the gate's MultiKueueConfig as another gate's.
func (tg *testGate) setConfigOwner(owner string) {
	tg.t.Helper()
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: tg.name}}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.ManagedByLabel, owner)
	if err := apiClient.Patch(tg.t.Context(), config, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		tg.t.Fatal(err)
	}
}

// connect reports MultiKueueClusters as connected, as Kueue does.
func (tg *testGate) connect(clusters ...string) {
	tg.t.Helper()
	for _, name := range clusters {
		tg.setActive(name, metav1.Condition{Type: kueue.MultiKueueClusterActive, Status: "True", Reason: "Active"})
	}
}

// disconnect reports a MultiKueueCluster whose credentials no longer work, as Kueue does.
func (tg *testGate) disconnect(cluster string) {
	tg.t.Helper()
	tg.setActive(cluster, metav1.Condition{Type: kueue.MultiKueueClusterActive, Status: "False", Reason: "BadKubeConfig", Message: "Unauthorized"})
}

func (tg *testGate) setActive(cluster string, active metav1.Condition) {
	tg.t.Helper()
	tg.retry(func() error {
		c := &kueue.MultiKueueCluster{}
		if err := apiClient.Get(tg.t.Context(), client.ObjectKey{Name: cluster}, c); err != nil {
			return err
		}
		apimeta.SetStatusCondition(&c.Status.Conditions, active)
		return apiClient.Status().Update(tg.t.Context(), c)
	})
}

// waitUntilConnected waits until the operator knows that both clusters are connected.
func (tg *testGate) waitUntilConnected() {
	tg.t.Helper()
	g := NewWithT(tg.t)
	tg.workload.devicesPerPod = "0"
	wl := tg.submitGated("probe", 1)
	g.Eventually(func() []string {
		e, err := reconciler.Explain(tg.t.Context(), client.ObjectKeyFromObject(wl))
		g.Expect(err).NotTo(HaveOccurred())
		var usable []string
		for _, c := range e.Clusters {
			if c.Rejection != gate.RejectUnusable {
				usable = append(usable, c.Cluster)
			}
		}
		return usable
	}).Should(ConsistOf(tg.name+"-1", tg.name+"-2"))
	g.Expect(apiClient.Delete(tg.t.Context(), wl)).To(Succeed())
	tg.workload.devicesPerPod = ""
}

// publishScore writes a cluster's score fleet/total, as a ScoringPolicy does.
func (tg *testGate) publishScore(cluster string, value int32) {
	tg.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	if err := apiClient.Create(tg.t.Context(), namespace); client.IgnoreAlreadyExists(err) != nil {
		tg.t.Fatal(err)
	}
	tg.retry(func() error {
		s := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "fleet", Labels: map[string]string{"publisher": "test"}}}
		if err := apiClient.Create(tg.t.Context(), s); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		if err := apiClient.Get(tg.t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		until := metav1.NewTime(time.Now().Add(time.Hour))
		s.Status = clusterv1alpha1.AddOnPlacementScoreStatus{ValidUntil: &until, Scores: []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "total", Value: value}}}
		return apiClient.Status().Update(tg.t.Context(), s)
	})
}

// createQueue creates a LocalQueue and, if absent, its ClusterQueue.
func (tg *testGate) createQueue(local, clusterQueue, cohort string) {
	tg.t.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: clusterQueue}, Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort)}}
	if err := apiClient.Create(tg.t.Context(), cq); client.IgnoreAlreadyExists(err) != nil {
		tg.t.Fatal(err)
	}
	tg.create(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: tg.name, Name: local},
		Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}})
}

// createPendingWorkload creates a workload that waits for quota in a LocalQueue.
func (tg *testGate) createPendingWorkload(name, queue string) {
	tg.t.Helper()
	tg.create(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: tg.name, Name: name}, Spec: kueue.WorkloadSpec{
		QueueName: kueue.LocalQueueName(queue), PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}}}}})
}

// submit creates a workload with these checks whose quota Kueue has reserved.
func (tg *testGate) submit(name string, pods int32, checks ...string) *kueue.Workload {
	tg.t.Helper()
	template := tg.workload
	devices := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(cmp.Or(template.devicesPerPod, "8"))}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: tg.name, Name: name, Annotations: template.annotations}, Spec: kueue.WorkloadSpec{QueueName: "gpu", Priority: &template.priority,
		PodSets: []kueue.PodSet{{Name: "main", Count: pods, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, NodeSelector: template.nodeSelector, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Limits: devices, Requests: devices}}}}}}}}}
	tg.create(wl)
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		s.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(cmp.Or(template.clusterQueue, "gpu")), PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &pods,
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": kueue.ResourceFlavorReference(cmp.Or(template.flavor, "h100"))}}}}
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: "True", Reason: "QuotaReserved"})
		for _, c := range checks {
			s.AdmissionChecks = append(s.AdmissionChecks, kueue.AdmissionCheckState{
				Name: kueue.AdmissionCheckReference(c), State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(time.Now().Add(-template.checksAge))})
		}
		if template.changeStatus != nil {
			template.changeStatus(s)
		}
	})
	return wl
}

// submitGated submits a workload with the gate's check and MultiKueue's.
func (tg *testGate) submitGated(name string, pods int32) *kueue.Workload {
	tg.t.Helper()
	return tg.submit(name, pods, tg.gateCheck(), tg.multiKueueCheck())
}

// updateStatus applies the whole status with the field manager of Kueue's admission.
func (tg *testGate) updateStatus(wl *kueue.Workload, change func(*kueue.WorkloadStatus)) {
	tg.t.Helper()
	tg.retry(func() error {
		live := &kueue.Workload{}
		if err := apiClient.Get(tg.t.Context(), client.ObjectKeyFromObject(wl), live); err != nil {
			return err
		}
		change(&live.Status)
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&live.Status)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
		u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
		u.SetNamespace(wl.Namespace)
		u.SetName(wl.Name)
		u.SetResourceVersion(live.ResourceVersion)
		return apiClient.Status().Apply(tg.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kueue-admission"), client.ForceOwnership)
	})
}

// evict begins an eviction as Kueue does after the copy of a running job is gone: nominations
// and checks are reset, and the quota stays reserved until a worker reports the job's status.
func (tg *testGate) evict(wl *kueue.Workload) {
	tg.t.Helper()
	tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
		s.NominatedClusterNames = nil
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: "True", Reason: "AdmissionCheck"})
		resetChecks(s)
	})
}

// resetChecks sets every check Pending.
func resetChecks(s *kueue.WorkloadStatus) {
	for i := range s.AdmissionChecks {
		s.AdmissionChecks[i].State, s.AdmissionChecks[i].LastTransitionTime = kueue.CheckStatePending, metav1.Now()
	}
}

// releaseQuota removes the admission and sets QuotaReserved False.
func releaseQuota(s *kueue.WorkloadStatus) {
	s.Admission = nil
	apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: "False", Reason: "Pending"})
}

// patch applies a merge patch to a workload.
func (tg *testGate) patch(wl *kueue.Workload, merge string) {
	tg.t.Helper()
	if err := apiClient.Patch(tg.t.Context(), getWorkload(tg.t, wl), client.RawPatch(types.MergePatchType, []byte(merge))); err != nil {
		tg.t.Fatal(err)
	}
}
