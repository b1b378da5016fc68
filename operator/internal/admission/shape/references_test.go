package shape

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var allKinds = []v1alpha1.PrerequisiteKind{
	v1alpha1.PrerequisiteNamespace, v1alpha1.PrerequisiteLocalQueue, v1alpha1.PrerequisiteServiceAccount, v1alpha1.PrerequisiteConfigMap,
	v1alpha1.PrerequisiteSecret, v1alpha1.PrerequisitePersistentVolumeClaim, v1alpha1.PrerequisitePriorityClass,
	v1alpha1.PrerequisiteRuntimeClass, v1alpha1.PrerequisiteResourceClaimTemplate,
}

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// volumes returns a pod with volumes.
func volumes(sources ...corev1.VolumeSource) corev1.PodSpec {
	var spec corev1.PodSpec
	for _, source := range sources {
		spec.Volumes = append(spec.Volumes, corev1.Volume{VolumeSource: source})
	}
	return spec
}

func TestReferences(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	for _, tc := range []struct {
		name  string
		spec  corev1.PodSpec
		owner metav1.OwnerReference
		want  []string // beside the namespace and the queue
	}{
		{name: "none"},
		{name: "service account", spec: corev1.PodSpec{ServiceAccountName: "trainer"}, want: []string{"ServiceAccount trainer"}},
		{name: "deprecated field of the service account", spec: corev1.PodSpec{DeprecatedServiceAccount: "trainer"}, want: []string{"ServiceAccount trainer"}},
		{name: "default service account", spec: corev1.PodSpec{ServiceAccountName: "default"}},
		{name: "priority class", spec: corev1.PodSpec{PriorityClassName: "high"}, want: []string{"PriorityClass high"}},
		{name: "priority classes of Kubernetes", spec: corev1.PodSpec{PriorityClassName: "system-node-critical"}},
		{name: "runtime class", spec: corev1.PodSpec{RuntimeClassName: ptr.To("nvidia")}, want: []string{"RuntimeClass nvidia"}},
		{name: "image pull secrets", spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{local("b"), local("a"), local("a"), {}}}, want: []string{"Secret a", "Secret b"}},
		{name: "claim templates, and a claim", spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{
			{Name: "gpu", ResourceClaimTemplateName: ptr.To("h100")}, {Name: "shared", ResourceClaimName: ptr.To("existing")}}}, want: []string{"ResourceClaimTemplate h100"}},
		{name: "environment", spec: corev1.PodSpec{Containers: []corev1.Container{{
			EnvFrom: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("settings")}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("wandb"), Optional: no}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("optional"), Optional: yes}},
			},
			Env: []corev1.EnvVar{
				{Name: "PLAIN", Value: "1"},
				{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
				{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("hf"), Key: "token"}}},
				{Name: "MODE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("modes"), Key: "a"}}},
				{Name: "MAYBE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("optional"), Key: "a", Optional: yes}}},
			}}}}, want: []string{"ConfigMap modes", "ConfigMap settings", "Secret hf", "Secret wandb"}},
		{name: "environment of an init container", spec: corev1.PodSpec{InitContainers: []corev1.Container{{
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("s3")}}}}}}, want: []string{"Secret s3"}},
		{name: "volumes", spec: volumes(
			corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("code")}},
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("optional"), Optional: yes}},
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "ssh"}},
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "optional", Optional: yes}},
			corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
			corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}},
		), want: []string{"ConfigMap code", "PersistentVolumeClaim data", "Secret ssh"}},
		{name: "secrets of storage", spec: volumes(
			corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: ptr.To(local("csi"))}},
			corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}},
			corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: ptr.To(local("flex"))}},
			corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: ptr.To(local("iscsi"))}},
			corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: ptr.To(local("cephfs"))}},
			corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: ptr.To(local("rbd"))}},
			corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure"}},
		), want: []string{"Secret azure", "Secret cephfs", "Secret csi", "Secret flex", "Secret iscsi", "Secret rbd"}},
		{name: "projected volume as each pod has one", spec: volumes(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("kube-root-ca.crt")}},
			{DownwardAPI: &corev1.DownwardAPIProjection{}}}}})},
		{name: "projected volume", spec: volumes(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("code")}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: local("keys")}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: local("optional"), Optional: yes}}}}}), want: []string{"ConfigMap code", "Secret keys"}},
		{name: "objects that a TrainJob creates", owner: metav1.OwnerReference{Kind: "TrainJob", Name: "llm"}, spec: volumes(
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "llm-mpi-ssh-auth"}},
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("llm-mpi-hostfile")}},
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "llm-token"}}), want: []string{"Secret llm-token"}},
		{name: "the same names of another job", owner: metav1.OwnerReference{Kind: "Job", Name: "llm"}, spec: volumes(
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "llm-mpi-ssh-auth"}}), want: []string{"Secret llm-mpi-ssh-auth"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job", OwnerReferences: []metav1.OwnerReference{tc.owner}}}
			wl.Spec.QueueName = "gpu"
			wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: tc.spec}},
				{Name: "unused", Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{PriorityClassName: "unused"}}}}
			var got []string
			for _, ref := range FactsOf(wl, Options{Prerequisites: allKinds}).References {
				if ref.Kind != v1alpha1.PrerequisiteNamespace && ref.Kind != v1alpha1.PrerequisiteLocalQueue {
					got = append(got, ref.String())
				} else if ref.String() != "Namespace team-a" && ref.String() != "LocalQueue gpu" {
					t.Errorf("unexpected %s", ref)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReferencesOfSomeKinds(t *testing.T) {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a"}}
	wl.Spec.PodSets = []kueue.PodSet{{Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		ServiceAccountName: "trainer", ImagePullSecrets: []corev1.LocalObjectReference{local("registry")}}}}}
	with := FactsOf(wl, OptionsOf(&v1alpha1.PlacementGateSpec{Prerequisites: []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteSecret}}}, nil))
	if diff := cmp.Diff([]Reference{{v1alpha1.PrerequisiteSecret, "registry"}}, with.References); diff != "" {
		t.Errorf("kind Secret alone (-want +got):\n%s", diff)
	}
	wl.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "train-0"}}
	ofPod := FactsOf(wl, OptionsOf(&v1alpha1.PlacementGateSpec{Prerequisites: []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteSecret}}}, nil))
	if len(ofPod.References) > 0 {
		t.Errorf("a plain pod refers to %v, which its service account on the hub added", ofPod.References)
	}
	without := FactsOf(wl, OptionsOf(&v1alpha1.PlacementGateSpec{}, nil))
	if without.References != nil {
		t.Errorf("a gate without prerequisites reads %v", without.References)
	}
	if with.EquivalenceKey() == without.EquivalenceKey() {
		t.Error("workloads that need other objects have the same key: the first would decide for both")
	}
	both := without.With(with, with)
	if diff := cmp.Diff(with.References, both.References); diff != "" {
		t.Errorf("job of several workloads (-want +got):\n%s", diff)
	}
}
