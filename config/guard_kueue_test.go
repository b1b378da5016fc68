//go:build integration

package config_test

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The guard is installed before Kueue, or before the first AdmissionCheck exists. It must not refuse the
// writes of Kueue, and it applies to the operator once there are checks.
func TestGuardWithoutAdmissionChecks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	g, config := startGuard(ctx, t, nil)
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: kueueCRDs(t), MaxTime: time.Minute}); err != nil {
		t.Fatal(err)
	}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "team-a"}, Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{
		Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}}}},
	}}}}
	if err := g.admin.Create(ctx, wl); err != nil {
		t.Fatal(err)
	}
	// The API server finds new kinds after up to half a minute.
	gomega.NewWithT(t).Eventually(func() error {
		changed := wl.DeepCopy()
		changed.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", Message: "no quota", LastTransitionTime: metav1.Now()}}
		return g.admin.Status().Patch(ctx, changed, client.MergeFrom(wl), client.FieldOwner("kueue-admission"))
	}, time.Minute, 200*time.Millisecond).Should(gomega.Succeed())
	g.createChecks(ctx, t)
	g.waitUntilEffective(ctx, t)
}
