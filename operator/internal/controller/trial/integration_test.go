//go:build integration

package trial_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/trial"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/test/crds"
)

// hub is a real API server without Kueue: the tests write what Kueue would.
type hub struct {
	client.Client
	*gomega.WithT
	t       *testing.T
	cfg     *rest.Config
	sources *query.Sources
	stop    context.CancelFunc
}

// A job is tried, its profile is filled, the copies are gone, and the check is Ready, although the
// operator is replaced in the middle.
func TestTrialOnAnAPIServer(t *testing.T) {
	h := startHub(t)
	h.submit("first")
	h.Eventually(h.copies, time.Minute, 100*time.Millisecond).Should(gomega.HaveLen(2))
	h.stop()
	for _, job := range h.copies() {
		h.finishCopy(&job)
	}
	h.startOperator()
	h.Eventually(h.state("first"), time.Minute, 100*time.Millisecond).Should(gomega.Equal("Ready: the trial has ended: the profile of the job knows l4 (throughput 0.8367), h100 (throughput 0.8367)"))
	h.Eventually(h.copies, time.Minute, 100*time.Millisecond).Should(gomega.BeEmpty())
	p := &v1alpha1.JobProfile{}
	h.Expect(h.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "llama"}, p)).To(gomega.Succeed())
	h.Expect(p.Status.Models).To(gomega.HaveLen(2))
	for _, m := range p.Status.Models {
		h.Expect(m.Trials).To(gomega.BeEquivalentTo(1))
		h.Expect(*m.MemoryPeakP90Bytes).To(gomega.BeNumerically("~", 30e9, 1.5e9))
		h.Expect(m.ThroughputP50).NotTo(gomega.BeEmpty())
	}
	policy := &v1alpha1.TrialPolicy{}
	h.Eventually(func() ([]v1alpha1.RunningTrial, error) {
		return policy.Status.Trials, h.Get(t.Context(), client.ObjectKey{Name: "gpu"}, policy)
	}, time.Minute, 100*time.Millisecond).Should(gomega.BeEmpty())
	h.Expect(policy.Status.CopiesToday).To(gomega.BeEquivalentTo(2))
}

// A Workload is deleted while no operator runs: the next one deletes its copies.
func TestCopiesOfADeletedWorkload(t *testing.T) {
	h := startHub(t)
	h.submit("deleted")
	h.Eventually(h.copies, time.Minute, 100*time.Millisecond).Should(gomega.HaveLen(2))
	h.stop()
	h.Expect(h.Delete(t.Context(), &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deleted"}})).To(gomega.Succeed())
	h.startOperator()
	h.Eventually(h.copies, time.Minute, 100*time.Millisecond).Should(gomega.BeEmpty())
}

// The condition Ready of a policy follows the MetricsSource.
func TestPolicyFollowsItsSource(t *testing.T) {
	h := startHub(t)
	policy := &v1alpha1.TrialPolicy{}
	ready := func() (string, error) {
		err := h.Get(t.Context(), client.ObjectKey{Name: "gpu"}, policy)
		if len(policy.Status.Conditions) == 0 {
			return "", err
		}
		return policy.Status.Conditions[0].Reason, err
	}
	h.Eventually(ready, time.Minute, 100*time.Millisecond).Should(gomega.Equal("Ready"))
	h.Expect(h.Delete(t.Context(), &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "thanos"}})).To(gomega.Succeed())
	h.Eventually(ready, time.Minute, 100*time.Millisecond).Should(gomega.Equal(v1alpha1.ReasonSourceNotFound))
}

func (h *hub) copies() []batchv1.Job {
	list := &batchv1.JobList{}
	h.Expect(h.List(h.t.Context(), list, client.HasLabels{v1alpha1.TrialOfLabel})).To(gomega.Succeed())
	return list.Items
}

// state returns a function that returns the state and the message of a Workload's check.
func (h *hub) state(name string) func() string {
	return func() string {
		wl := &kueue.Workload{}
		h.Expect(h.Get(h.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, wl)).To(gomega.Succeed())
		return string(wl.Status.AdmissionChecks[0].State) + ": " + wl.Status.AdmissionChecks[0].Message
	}
}

// submit creates a Job of 4 pods with 8 devices each, and its Workload with quota.
func (h *hub) submit(name string) {
	h.t.Helper()
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.TrialLabel: "true", v1alpha1.ProfileLabel: "llama"}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "train:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}, Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}}}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: batchv1.JobSpec{Parallelism: new(int32(4)), Completions: new(int32(4)), Suspend: new(true), Template: template}}
	h.Expect(h.Create(h.t.Context(), job)).To(gomega.Succeed())
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: job.UID, Controller: new(true)}}},
		Spec: kueue.WorkloadSpec{QueueName: "gpu", PodSets: []kueue.PodSet{{Name: "main", Count: 4, Template: template}}}}
	h.Expect(h.Create(h.t.Context(), wl)).To(gomega.Succeed())
	now := metav1.Now()
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpu", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(4))}}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "trial", State: kueue.CheckStatePending, LastTransitionTime: now}}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: now}}
	h.Expect(h.Status().Update(h.t.Context(), wl)).To(gomega.Succeed())
}

// finishCopy creates the Workload of a copy that ran on c1 until 20 seconds ago.
func (h *hub) finishCopy(job *batchv1.Job) {
	h.t.Helper()
	end := time.Now().Add(-20 * time.Second)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "copy-" + job.Name, Labels: map[string]string{"kueue.x-k8s.io/job-uid": string(job.UID)}},
		Spec: kueue.WorkloadSpec{QueueName: "trials", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: job.Spec.Template}}}}
	h.Expect(h.Create(h.t.Context(), wl)).To(gomega.Succeed())
	wl.Status.ClusterName = new("c1")
	wl.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted", LastTransitionTime: metav1.NewTime(end.Add(-time.Minute))},
		{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonFailed, LastTransitionTime: metav1.NewTime(end)},
	}
	h.Expect(h.Status().Update(h.t.Context(), wl)).To(gomega.Succeed())
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme, clusterv1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// startHub starts an API server with a TrialPolicy and what it needs, and an operator.
func startHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{WithT: gomega.NewWithT(t), t: t, sources: &query.Sources{}}
	definitions, err := crds.Hub()
	h.Expect(err).NotTo(gomega.HaveOccurred())
	env := &envtest.Environment{ControlPlaneStartTimeout: 3 * time.Minute, CRDInstallOptions: envtest.CRDInstallOptions{CRDs: definitions, Scheme: runtime.NewScheme()}}
	h.cfg, err = env.Start()
	h.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { _ = env.Stop() })
	h.Client, err = client.New(h.cfg, client.Options{Scheme: newScheme(t)})
	h.Expect(err).NotTo(gomega.HaveOccurred())
	h.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, query.QuerierFunc(h.query))
	model := func(name string) v1alpha1.TrialModel {
		return v1alpha1.TrialModel{Name: name, NodeSelector: map[string]string{"model": name}}
	}
	for _, obj := range []client.Object{
		&v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "thanos"}, Spec: v1alpha1.MetricsSourceSpec{URL: "http://thanos:9090"}},
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "trials"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "trials"}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.TrialControllerName,
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "TrialPolicy", Name: "gpu"}}},
		&v1alpha1.TrialPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.TrialPolicySpec{SourceRef: v1alpha1.LocalReference{Name: "thanos"}, QueueName: "trials",
			PriorityClassName: "trial", Models: []v1alpha1.TrialModel{model("l4"), model("h100")},
			ThroughputQuery: `sum by ($cluster_label) (rate(train_steps_total{$cluster_label="$cluster",namespace="$namespace",job_name="$owner_name"}[2m]))`}},
	} {
		h.Expect(h.Create(t.Context(), obj)).To(gomega.Succeed())
	}
	h.startOperator()
	return h
}

// query responds with a value for the model of the copy in the expression.
func (h *hub) query(ctx context.Context, expr string, _ time.Time) (query.Result, error) {
	list := &batchv1.JobList{}
	if err := h.List(ctx, list, client.HasLabels{v1alpha1.TrialOfLabel}); err != nil {
		return query.Result{}, err
	}
	labels := map[string]string{"cluster": "c1"}
	for i := range list.Items {
		if strings.Contains(expr, list.Items[i].Name) && !strings.Contains(expr, "train_steps_total") {
			labels["model"] = list.Items[i].Spec.Template.Spec.NodeSelector["model"]
		}
	}
	value := 0.75
	if strings.Contains(expr, "memory_used_bytes") {
		value = 30e9
	}
	return query.Result{Samples: []query.Sample{{Labels: labels, Value: value}}}, nil
}

// startOperator starts the controller in a new manager. h.stop ends it.
func (h *hub) startOperator() {
	h.t.Helper()
	mgr, err := ctrl.NewManager(h.cfg, ctrl.Options{Scheme: newScheme(h.t), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}})
	h.Expect(err).NotTo(gomega.HaveOccurred())
	h.Expect(trial.Setup(mgr, trial.Options{Enabled: true, Sources: h.sources})).To(gomega.Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = mgr.Start(ctx)
	}()
	h.stop = func() {
		cancel()
		<-done
	}
	h.t.Cleanup(h.stop)
}
