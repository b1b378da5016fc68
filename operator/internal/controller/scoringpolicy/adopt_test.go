//go:build integration

package scoringpolicy_test

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestAdoptionOfScoresWithoutAController migrates from a component that wrote an object of
// the same name, as resource-usage-collect does. Its scores disappear. An object with a
// controller is not adopted.
func TestAdoptionOfScoresWithoutAController(t *testing.T) {
	ctx, controller := context.Background(), true
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"adopt-1": "3", "adopt-2": "4"})
	for _, cluster := range []string{"adopt-1", "adopt-2"} {
		createCluster(t, cluster, map[string]string{"fleet": "adopt"})
		old := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "adopt"}}
		if cluster == "adopt-2" {
			old.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "1", Controller: &controller}}
		}
		create(t, old)
		old.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "free", Value: 99}, {Name: "cpuAvailable", Value: 50}}
		if err := api.Status().Update(ctx, old, client.FieldOwner("usage-collect")); err != nil {
			t.Fatal(err)
		}
	}
	create(t, source("adopt", prom.URL))
	p := policy("adopt")
	create(t, p)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		out, message := condition(g, "adopt", v1alpha1.ConditionPublished)
		g.Expect(out).To(gomega.Equal("False/NameTaken"))
		g.Expect(message).To(gomega.ContainSubstring("adopt-1, adopt-2"))
		g.Expect(values(g, "adopt-1", "adopt")).To(gomega.Equal(scores{"free": 99, "cpuAvailable": 50}))
	})
	adopting := p.DeepCopy()
	adopting.Spec.Publish.Existing = v1alpha1.ExistingAdopt
	if err := api.Patch(ctx, adopting, client.MergeFrom(p)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "adopt-1", "adopt")).To(gomega.Equal(scores{"free": 30, "total": 30}))
		g.Expect(metav1.GetControllerOf(score(g, "adopt-1", "adopt")).Name).To(gomega.Equal("adopt"))
		g.Expect(values(g, "adopt-2", "adopt")).To(gomega.Equal(scores{"free": 99, "cpuAvailable": 50}))
	})
}

// TestScoresOfOtherFieldManagersStay: another component applies a score to our object. It
// stays, and the object is not written again. A score that the policy drops is removed.
func TestScoresOfOtherFieldManagersStay(t *testing.T) {
	ctx := context.Background()
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"beside-1": "3"})
	createCluster(t, "beside-1", map[string]string{"fleet": "beside"})
	create(t, source("beside", prom.URL))
	p := policy("beside")
	create(t, p)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "beside-1", "beside")).To(gomega.Equal(scores{"free": 30, "total": 30}))
	})
	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1alpha1.GroupVersion.String(), "kind": "AddOnPlacementScore",
		"metadata": map[string]any{"namespace": "beside-1", "name": "beside"},
		"status":   map[string]any{"scores": []any{map[string]any{"name": "cost", "value": int64(7)}}},
	}}
	if err := api.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(other), client.FieldOwner("cost-exporter")); err != nil {
		t.Fatal(err)
	}
	var written string
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "beside-1", "beside")).To(gomega.Equal(scores{"free": 30, "total": 30, "cost": 7}))
		written = score(g, "beside-1", "beside").ResourceVersion
	})
	rounds := lastRound(t, "beside")
	eventually(t, func(g gomega.Gomega) {
		g.Expect(lastRound(t, "beside").Sub(rounds)).To(gomega.BeNumerically(">=", 3*time.Second))
	})
	g := gomega.NewWithT(t)
	g.Expect(score(g, "beside-1", "beside").ResourceVersion).To(gomega.Equal(written), "the object was written again")

	g.Expect(api.Get(ctx, client.ObjectKeyFromObject(p), p)).To(gomega.Succeed())
	smaller := p.DeepCopy()
	smaller.Spec.Total = nil
	g.Expect(api.Patch(ctx, smaller, client.MergeFrom(p))).To(gomega.Succeed())
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "beside-1", "beside")).To(gomega.Equal(scores{"free": 30, "cost": 7}))
	})
}
