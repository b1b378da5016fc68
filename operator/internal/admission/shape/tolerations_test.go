package shape

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Tolerations are those of the pod, of each flavor that Kueue assigned, and of the gate that pins pods to a cluster.
func TestTolerations(t *testing.T) {
	const noSchedule = corev1.TaintEffectNoSchedule
	pod := &corev1.PodSpec{Tolerations: []corev1.Toleration{
		{Key: "team", Value: "ml", Effect: noSchedule},
		{Key: "team", Operator: corev1.TolerationOpExists, Value: "ignored"},
		{Key: "soft", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
		{Key: "team", Operator: corev1.TolerationOpEqual, Value: "ml", Effect: noSchedule},
	}}
	assigned := &kueue.PodSetAssignment{Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "spot", "cpu": "cpu"}}
	flavors := map[string]kueue.ResourceFlavorSpec{"spot": {Tolerations: []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}}, "cpu": {Tolerations: []corev1.Toleration{{Key: "cpu"}}}}
	spec := &v1alpha1.PlacementGateSpec{PodSetUpdates: &v1alpha1.GatePodSetUpdates{Tolerations: []corev1.Toleration{{Key: "cluster", Operator: corev1.TolerationOpExists}}}}
	want := []Toleration{{Key: "cluster", AnyValue: true}, {Key: "cpu"}, {Key: "spot", AnyValue: true}, {Key: "team", AnyValue: true}, {Key: "team", Value: "ml", Effect: noSchedule}}
	opts := OptionsOf(spec, func(name string) kueue.ResourceFlavorSpec { return flavors[name] })
	if diff := cmp.Diff(want, tolerationsOf(pod, assigned, opts)); diff != "" {
		t.Error(diff)
	}
	if opts.AllDevices = true; tolerationsOf(pod, assigned, opts) != nil {
		t.Error("a gate with its own fit query has tolerations")
	}
}
