//go:build integration

package workload_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func validGate() *v1alpha1.PlacementGate {
	return &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "valid"}, Spec: v1alpha1.PlacementGateSpec{
		PlacementRef: v1alpha1.NamespacedReference{Namespace: "none", Name: "gpu"}, SourceRef: v1alpha1.LocalReference{Name: "none"},
		MultiKueue: &v1alpha1.GateMultiKueue{ConfigName: "valid"}}}
}

func TestInvalidGatesAreRefused(t *testing.T) {
	long := strings.Repeat("x", 254)
	forever := int32(2592001)
	for want, change := range map[string]func(*v1alpha1.PlacementGateSpec){
		"nameTemplate must contain {cluster}": func(s *v1alpha1.PlacementGateSpec) { s.MultiKueue.Credentials.NameTemplate = "kubeconfig" },
		"spec.aliases: Too many": func(s *v1alpha1.PlacementGateSpec) {
			s.Aliases = map[string]string{}
			for i := range 65 {
				s.Aliases[fmt.Sprint(i)] = "x"
			}
		},
		"aliases must be of at most 253 characters each": func(s *v1alpha1.PlacementGateSpec) { s.Aliases = map[string]string{"x": long} },
		"values of at most 253": func(s *v1alpha1.PlacementGateSpec) {
			s.MultiKueue, s.PodSetUpdates = nil, &v1alpha1.GatePodSetUpdates{NodeSelector: map[string]string{"x": long}}
		},
		"spec.freshness.maxSampleAgeSeconds":      func(s *v1alpha1.PlacementGateSpec) { s.Freshness.MaxSampleAgeSeconds = 86401 },
		"spec.freshness.unknownAfterSeconds":      func(s *v1alpha1.PlacementGateSpec) { s.Freshness.UnknownAfterSeconds = 86401 },
		"spec.whenUnplaceable.yieldAfterSeconds":  func(s *v1alpha1.PlacementGateSpec) { s.WhenUnplaceable.YieldAfterSeconds = 86401 },
		"spec.whenUnplaceable.giveUpAfterSeconds": func(s *v1alpha1.PlacementGateSpec) { s.WhenUnplaceable.GiveUpAfterSeconds = &forever },
		"spec.widen.afterSeconds":                 func(s *v1alpha1.PlacementGateSpec) { s.Widen.AfterSeconds = 86401 },
	} {
		pg := validGate()
		change(&pg.Spec)
		err := api.Create(t.Context(), pg)
		if err == nil {
			_ = api.Delete(t.Context(), pg)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	g := NewWithT(t)
	pg := validGate()
	g.Expect(api.Create(t.Context(), pg)).To(Succeed())
	g.Expect(pg.Spec.MultiKueue.Credentials.NameTemplate).To(BeEmpty(), "the default depends on the type")
	g.Expect(api.Delete(t.Context(), pg)).To(Succeed())
}
