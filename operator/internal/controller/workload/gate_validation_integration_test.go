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

func TestInvalidGateIsRejected(t *testing.T) {
	minimum, tooLate, tooLong := int32(50), int32(2592001), strings.Repeat("x", 254)
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.PlacementGateSpec)
		want   string
	}{
		{"unknown before too old", func(s *v1alpha1.PlacementGateSpec) {
			s.Freshness.MaxSampleAgeSeconds, s.Freshness.UnknownAfterSeconds = 120, 119
		}, "unknownAfterSeconds must not be smaller than maxSampleAgeSeconds"},
		{"minimum of a preferred score", func(s *v1alpha1.PlacementGateSpec) {
			s.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Minimum: &minimum}}
		}, "minimum is allowed only with use: Require"},
		{"podSetUpdates with multiKueue", func(s *v1alpha1.PlacementGateSpec) {
			s.PodSetUpdates = &v1alpha1.GatePodSetUpdates{NodeSelector: map[string]string{clusterLabel: "vk-{cluster}"}}
		}, "podSetUpdates must not be set together with multiKueue"},
		{"template without cluster", func(s *v1alpha1.PlacementGateSpec) { s.MultiKueue.Credentials.NameTemplate = "kubeconfig" },
			"nameTemplate must contain {cluster}"},
		{"too many aliases", func(s *v1alpha1.PlacementGateSpec) {
			s.Aliases = map[string]string{}
			for i := range 65 {
				s.Aliases[fmt.Sprint(i)] = "x"
			}
		}, "spec.aliases: Too many"},
		{"alias too long", func(s *v1alpha1.PlacementGateSpec) { s.Aliases = map[string]string{"x": tooLong} },
			"aliases must be of at most 253 characters each"},
		{"node selector too long", func(s *v1alpha1.PlacementGateSpec) {
			s.MultiKueue, s.PodSetUpdates = nil, &v1alpha1.GatePodSetUpdates{NodeSelector: map[string]string{"x": tooLong}}
		}, "values of at most 253"},
		{"prerequisite without a default query", func(s *v1alpha1.PlacementGateSpec) {
			s.Prerequisites = []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteRuntimeClass}}
		}, "query must be set for this kind"},
		{"prerequisite twice", func(s *v1alpha1.PlacementGateSpec) {
			s.Prerequisites = []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteSecret}, {Kind: v1alpha1.PrerequisiteSecret, Query: "x"}}
		}, "Duplicate value"},
		{"unknown prerequisite", func(s *v1alpha1.PlacementGateSpec) { s.Prerequisites = []v1alpha1.GatePrerequisite{{Kind: "Pod"}} }, "Unsupported value"},
		{"maxSampleAgeSeconds", func(s *v1alpha1.PlacementGateSpec) { s.Freshness.MaxSampleAgeSeconds = 86401 }, "spec.freshness.maxSampleAgeSeconds"},
		{"unknownAfterSeconds", func(s *v1alpha1.PlacementGateSpec) { s.Freshness.UnknownAfterSeconds = 86401 }, "spec.freshness.unknownAfterSeconds"},
		{"yieldAfterSeconds", func(s *v1alpha1.PlacementGateSpec) { s.WhenUnplaceable.YieldAfterSeconds = 86401 }, "spec.whenUnplaceable.yieldAfterSeconds"},
		{"giveUpAfterSeconds", func(s *v1alpha1.PlacementGateSpec) { s.WhenUnplaceable.GiveUpAfterSeconds = &tooLate }, "spec.whenUnplaceable.giveUpAfterSeconds"},
		{"advanced.widenAfterSeconds", func(s *v1alpha1.PlacementGateSpec) { s.Advanced.WidenAfterSeconds = 86401 }, "spec.advanced.widenAfterSeconds"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pg := validGate()
			tc.change(&pg.Spec)
			err := apiClient.Create(t.Context(), pg)
			if err == nil {
				_ = apiClient.Delete(t.Context(), pg)
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.want)))
		})
	}
}

func TestValidGateIsAccepted(t *testing.T) {
	minimum := int32(50)
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.PlacementGateSpec)
	}{
		{"defaults", func(*v1alpha1.PlacementGateSpec) {}},
		{"unknown as soon as too old", func(s *v1alpha1.PlacementGateSpec) {
			s.Freshness = v1alpha1.GateFreshness{MaxSampleAgeSeconds: 60, UnknownAfterSeconds: 60}
		}},
		{"prerequisites", func(s *v1alpha1.PlacementGateSpec) {
			s.Prerequisites = []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteSecret}, {Kind: v1alpha1.PrerequisiteRuntimeClass, Query: "x"}}
		}},
		{"minimum of a required score", func(s *v1alpha1.PlacementGateSpec) {
			s.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UseRequire, Minimum: &minimum}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			pg := validGate()
			tc.change(&pg.Spec)
			g.Expect(apiClient.Create(t.Context(), pg)).To(Succeed())
			g.Expect(pg.Spec.MultiKueue.Credentials.NameTemplate).To(BeEmpty(), "the default depends on the type of the credentials")
			g.Expect(apiClient.Delete(t.Context(), pg)).To(Succeed())
		})
	}
}
