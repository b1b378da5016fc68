package lifecycle

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// No record places a workload before one that was created earlier: it waits neither since before its
// creation nor since after its reservation.
func TestForgedRecordDoesNotChangeTheOrder(t *testing.T) {
	c := chance{rand.New(rand.NewPCG(3, 4))}
	for range 5_000 {
		created := fixture.Noon.Add(-time.Duration(c.IntN(1200)) * time.Second)
		record := c.record()
		if c.oneIn(2) {
			record.WaitsSince = time.Unix(c.Int64N(1<<33), 0)
		}
		s := situationWith(func(s *Situation) {
			s.Workload.CreationTimestamp = metav1.NewTime(created)
			fixture.WithRecord(s.Workload, record)
		})
		if since := s.Rank().Since; since.Before(created) || since.After(fixture.Noon) {
			t.Fatalf("created at %s, reserved at %s, waits since %s with %+v", created, fixture.Noon, since, record)
		}
	}
}

// A workload that yielded keeps its place.
func TestYieldKeepsThePlace(t *testing.T) {
	first := fixture.Noon.Add(-time.Hour)
	for _, tc := range []struct {
		name    string
		created time.Time
		want    time.Time
	}{
		{"created before", first.Add(-time.Minute), first},
		{"created later than its record says", fixture.Noon.Add(-time.Minute), fixture.Noon.Add(-time.Minute)},
		{"created after the reservation, by another clock", fixture.Noon.Add(time.Minute), fixture.Noon},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(func(s *Situation) {
				s.Workload.CreationTimestamp = metav1.NewTime(tc.created)
				fixture.WithRecord(s.Workload, dispatch.Record{WaitsSince: first, Yields: 1})
			})
			if got := s.Rank().Since; !got.Equal(tc.want) {
				t.Errorf("waits since %s, want %s", got, tc.want)
			}
		})
	}
}

// Trimming keeps every kind of reference.
func TestTrimKeepsReferences(t *testing.T) {
	wl := fixture.PendingWorkload(fixture.Noon)
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	spec := &wl.Spec.PodSets[0].Template.Spec
	spec.ServiceAccountName, spec.PriorityClassName, spec.RuntimeClassName = "account", "priority", new("runtime")
	spec.ImagePullSecrets = []corev1.LocalObjectReference{local("registry")}
	spec.ResourceClaims = []corev1.PodResourceClaim{{ResourceClaimTemplateName: new("claim")}}
	spec.Containers[0].Env = []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("key")}}},
		{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("mode")}}}}
	spec.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("settings")}}}}}
	spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: local("keys")}}}}}}}
	gate := &v1alpha1.PlacementGateSpec{}
	for _, kind := range []v1alpha1.PrerequisiteKind{"Namespace", "LocalQueue", "ServiceAccount", "ConfigMap", "Secret", "PersistentVolumeClaim", "PriorityClass", "RuntimeClass", "ResourceClaimTemplate"} {
		gate.Prerequisites = append(gate.Prerequisites, v1alpha1.GatePrerequisite{Kind: kind})
	}
	s := &Situation{}
	want := s.FactsUnder(wl, gate).References
	kueuestate.Trim(wl)
	if diff := cmp.Diff(want, s.FactsUnder(wl, gate).References); diff != "" || len(want) != 11 {
		t.Errorf("%d references, want 11; trimmed (-want +got):\n%s", len(want), diff)
	}
}
