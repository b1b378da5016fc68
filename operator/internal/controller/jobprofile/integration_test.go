//go:build integration

package jobprofile_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/jobprofile"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/test/crds"
)

// A real API server accepts what the controller writes, and the next run continues from it.
func TestProfileOnAnAPIServer(t *testing.T) {
	hub, sources := startController(t)
	g := gomega.NewWithT(t)
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, query.QuerierFunc(func(_ context.Context, expr string, _ time.Time) (query.Result, error) {
		value := 0.75
		if strings.Contains(expr, "memory_used_bytes") {
			value = 30e9
		}
		return query.Result{Samples: []query.Sample{{Labels: map[string]string{"cluster": "c1", "model": "h100"}, Value: value}}}, nil
	}))
	create := func(obj client.Object) {
		t.Helper()
		g.Expect(hub.Create(t.Context(), obj)).To(gomega.Succeed())
	}
	create(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	create(&v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.PlacementGateSpec{
		PlacementRef: v1alpha1.NamespacedReference{Namespace: "default", Name: "gpu"}, SourceRef: v1alpha1.LocalReference{Name: "thanos"}, Profiles: &v1alpha1.GateProfiles{}}})
	create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "plimsoll"}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "PlacementGate", Name: "gpu"}}})
	for i, name := range []string{"first", "second"} {
		finish(t, hub, name)
		p := &v1alpha1.JobProfile{}
		g.Eventually(func() (int64, error) {
			err := hub.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "llama"}, p)
			return p.Status.Runs, client.IgnoreNotFound(err)
		}, 30*time.Second, 100*time.Millisecond).Should(gomega.BeEquivalentTo(i + 1))
		m := p.Status.Models[0]
		g.Expect(m.Model).To(gomega.Equal("h100"))
		g.Expect(*m.DurationP50Seconds).To(gomega.BeNumerically("~", 600, 60))
		g.Expect(*m.MemoryPeakP90Bytes).To(gomega.BeNumerically("~", 30e9, 1.5e9))
		g.Expect(*m.UtilizationP50Percent).To(gomega.BeNumerically("~", 78, 5))
	}
}

// finish creates a Workload that ran for ten minutes and ended a minute ago.
func finish(t *testing.T, hub client.Client, name string) {
	t.Helper()
	g, end := gomega.NewWithT(t), time.Now().Add(-time.Minute)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}},
		Spec: kueue.WorkloadSpec{QueueName: "gpu", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.ProfileLabel: "llama"}},
			Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "train:1"}}}}}}}}
	g.Expect(hub.Create(t.Context(), wl)).To(gomega.Succeed())
	wl.Status.ClusterName = new("c1")
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(end)}}
	wl.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted", LastTransitionTime: metav1.NewTime(end.Add(-10 * time.Minute))},
		{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded, LastTransitionTime: metav1.NewTime(end)},
	}
	g.Expect(hub.Status().Update(t.Context(), wl)).To(gomega.Succeed())
}

// startController starts an API server and the controller. It returns a client and the sources.
func startController(t *testing.T) (client.Client, *query.Sources) {
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
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	sources := &query.Sources{}
	g.Expect(jobprofile.Setup(mgr, jobprofile.Options{Sources: sources})).To(gomega.Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _ = mgr.Start(ctx) }()
	hub, err := client.New(cfg, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return hub, sources
}
