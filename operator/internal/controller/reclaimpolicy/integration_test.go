//go:build integration

package reclaimpolicy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/controller/reclaimpolicy"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/test/crds"
)

// A real API server accepts what the controller writes: the status in mode Shadow, and the
// deactivation in mode Enforce, which is the default.
func TestReclaimOnAnAPIServer(t *testing.T) {
	hub, sources := startController(t, nil)
	g := gomega.NewWithT(t)
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, query.QuerierFunc(func(_ context.Context, expr string, _ time.Time) (query.Result, error) {
		if strings.Contains(expr, "device_sample_timestamp") {
			return query.Result{Samples: []query.Sample{{Labels: map[string]string{"cluster": "c1"}, Value: 5}}}, nil
		}
		return query.Result{Samples: []query.Sample{{Value: 3000, Labels: map[string]string{"cluster": "c1", "namespace": "default", "owner_kind": "Job", "owner_name": "train", "node": "n1", "uuid": "GPU-1"}}}}, nil
	}))
	createFleet(t, hub)
	g.Expect(hub.Create(t.Context(), workload("waits"))).To(gomega.Succeed())
	wl := createRunning(t, hub)
	policy := &v1alpha1.ReclaimPolicy{ObjectMeta: metav1.ObjectMeta{Name: "idle-gpus"}, Spec: v1alpha1.ReclaimPolicySpec{
		SourceRef: v1alpha1.LocalReference{Name: "thanos"}, ClusterQueues: []string{"research"}, PeriodSeconds: 10, Mode: v1alpha1.ModeShadow}}
	g.Expect(hub.Create(t.Context(), policy)).To(gomega.Succeed())
	g.Expect(policy.Spec.MaxPerHour).To(gomega.BeEquivalentTo(4))
	history := func() ([]v1alpha1.ReclaimRecord, error) {
		err := hub.Get(t.Context(), client.ObjectKeyFromObject(policy), policy)
		return policy.Status.History, err
	}
	g.Eventually(history, 30*time.Second, 100*time.Millisecond).Should(gomega.HaveLen(1))
	g.Expect(policy.Status.History[0].Mode).To(gomega.Equal(v1alpha1.ModeShadow))
	g.Expect(hub.Get(t.Context(), client.ObjectKeyFromObject(wl), wl)).To(gomega.Succeed())
	g.Expect(wl.Annotations).NotTo(gomega.HaveKey(v1alpha1.DispatchAnnotation))

	before := policy.DeepCopy()
	policy.Spec.Mode = ""
	g.Expect(hub.Patch(t.Context(), policy, client.MergeFrom(before))).To(gomega.Succeed())
	g.Expect(policy.Spec.Mode).To(gomega.Equal(v1alpha1.ModeEnforce))
	g.Eventually(func() (*bool, error) {
		err := hub.Get(t.Context(), client.ObjectKeyFromObject(wl), wl)
		return wl.Spec.Active, err
	}, 30*time.Second, 100*time.Millisecond).Should(gomega.HaveValue(gomega.BeFalse()))
	record, err := dispatch.Decode(wl.Annotations)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(record.IsReclaimed()).To(gomega.BeTrue())
	g.Eventually(history, 30*time.Second, 100*time.Millisecond).Should(gomega.HaveLen(2))
}

// createFleet creates the cluster c1 and the ClusterQueue research.
func createFleet(t *testing.T, hub client.Client) {
	t.Helper()
	g, now := gomega.NewWithT(t), metav1.Now()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	g.Expect(hub.Create(t.Context(), cluster)).To(gomega.Succeed())
	cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: now}}
	g.Expect(hub.Status().Update(t.Context(), cluster)).To(gomega.Succeed())
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "research"}, Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}}}
	g.Expect(hub.Create(t.Context(), queue)).To(gomega.Succeed())
	local := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "research"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "research"}}
	g.Expect(hub.Create(t.Context(), local)).To(gomega.Succeed())
}

// createRunning creates a Workload that has run on c1 with one GPU for an hour.
func createRunning(t *testing.T, hub client.Client) *kueue.Workload {
	t.Helper()
	g, since := gomega.NewWithT(t), metav1.NewTime(time.Now().Add(-time.Hour))
	wl := workload("train")
	g.Expect(hub.Create(t.Context(), wl)).To(gomega.Succeed())
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "research", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: since})
	}
	wl.Status.ClusterName = new("c1")
	g.Expect(hub.Status().Update(t.Context(), wl)).To(gomega.Succeed())
	return wl
}

// workload is a workload of a Job with this name that requests one GPU and agreed to be reclaimed.
func workload(job string) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-" + job, OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: "job", Controller: new(true)}}},
		Spec: kueue.WorkloadSpec{QueueName: "research", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.ReclaimableLabel: "true"}},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "train:1",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}}}}}}}
}

// startController starts an API server and the controller. It returns a client and the sources.
func startController(t *testing.T, gates reclaimpolicy.Gates) (client.Client, *query.Sources) {
	t.Helper()
	g := gomega.NewWithT(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme, clusterv1.Install} {
		g.Expect(add(scheme)).To(gomega.Succeed())
	}
	definitions, err := crds.Hub()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	env := &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: definitions, Scheme: runtime.NewScheme()}}
	cfg, err := env.Start()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { _ = env.Stop() })
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	sources := &query.Sources{}
	g.Expect(reclaimpolicy.Setup(mgr, reclaimpolicy.Options{Sources: sources, Gates: gates, Nominate: true})).To(gomega.Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _ = mgr.Start(ctx) }()
	hub, err := client.New(cfg, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return hub, sources
}
