package kueuestate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestTrimKeepsWhatDecisionsUse(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	gpus := corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "train", Resources: gpus,
			Env: []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "token"}}},
				{Name: "MODE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "mode"}}}},
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}}},
		Volumes:        []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
		InitContainers: []corev1.Container{{Name: "sidecar", Image: "proxy", Resources: gpus, RestartPolicy: &always}},
		NodeSelector:   map[string]string{"zone": "a"},
		Tolerations:    []corev1.Toleration{{Key: "gpu"}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "claim"}},
		Affinity:       &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
	}}
	want := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "job", Annotations: map[string]string{ComponentAnnotation: "0"}},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: template}}}}
	got := want.DeepCopy()
	got.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kueue-admission"}}
	got.Annotations[lastAppliedAnnotation] = "{}"
	spec := &got.Spec.PodSets[0].Template.Spec
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		containers[0].Command, containers[0].Args = []string{"python"}, []string{"train.py"}
		containers[0].Env = append(containers[0].Env, corev1.EnvVar{Name: "A", Value: "B"},
			corev1.EnvVar{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}})
		containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data"}}
		containers[0].ReadinessProbe = &corev1.Probe{}
	}
	for range 2 { // a transform may see its own result again
		Trim(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("trimmed workload (-want +got):\n%s", diff)
		}
	}
}
