package shape

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Reference is an object that a workload needs on the cluster where it runs. Objects with a
// namespace are in the workload's namespace.
type Reference struct {
	Kind v1alpha1.PrerequisiteKind `json:"kind"`
	Name string                    `json:"name"`
}

// String returns kind and name.
func (r Reference) String() string { return string(r.Kind) + " " + r.Name }

func (r Reference) compare(other Reference) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Name, other.Name))
}

// RefersTo reports whether the workload refers to an object of the kind.
func (f Facts) RefersTo(kind v1alpha1.PrerequisiteKind) bool {
	return slices.ContainsFunc(f.References, func(r Reference) bool { return r.Kind == kind })
}

// Objects that each cluster creates itself.
const (
	defaultServiceAccount = "default"
	rootCAConfigMap       = "kube-root-ca.crt"
	serviceCAConfigMap    = "openshift-service-ca.crt" // on OpenShift
)

// generatedByTrainJob are the suffixes of objects that the controller of a TrainJob with MPI
// creates beside its pods. Their names begin with the TrainJob's name.
var generatedByTrainJob = map[v1alpha1.PrerequisiteKind]string{
	v1alpha1.PrerequisiteSecret:    "-mpi-ssh-auth",
	v1alpha1.PrerequisiteConfigMap: "-mpi-hostfile",
}

// references are the objects of some kinds that a workload refers to.
type references struct {
	kinds []v1alpha1.PrerequisiteKind
	found []Reference
}

// referencesOf returns the objects of the given kinds that a workload refers to, sorted and
// without duplicates. Optional references, and objects that the cluster or the job's controller
// creates, are left out. Pod sets without pods refer to nothing.
func referencesOf(wl *kueue.Workload, kinds []v1alpha1.PrerequisiteKind) []Reference {
	if len(kinds) == 0 {
		return nil
	}
	r := &references{kinds: kinds}
	r.add(v1alpha1.PrerequisiteNamespace, wl.Namespace)
	r.add(v1alpha1.PrerequisiteLocalQueue, string(wl.Spec.QueueName))
	// A cluster adds the pull secrets of its own service accounts to pods, but not to templates.
	isPod := slices.ContainsFunc(wl.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Pod" })
	for i := range wl.Spec.PodSets {
		spec := &wl.Spec.PodSets[i].Template.Spec
		if wl.Spec.PodSets[i].Count == 0 {
			continue
		}
		r.addPod(spec)
		for j := range spec.ImagePullSecrets {
			if !isPod {
				r.addSecret(&spec.ImagePullSecrets[j])
			}
		}
	}
	return sortReferences(slices.DeleteFunc(r.found, func(ref Reference) bool { return ref.isGenerated(wl) }))
}

func sortReferences(list []Reference) []Reference {
	slices.SortFunc(list, Reference.compare)
	return slices.Compact(list)
}

// isGenerated reports whether the object is created on each cluster that needs it.
func (r Reference) isGenerated(wl *kueue.Workload) bool {
	switch r {
	case Reference{v1alpha1.PrerequisiteServiceAccount, defaultServiceAccount}, Reference{v1alpha1.PrerequisiteConfigMap, rootCAConfigMap}, Reference{v1alpha1.PrerequisiteConfigMap, serviceCAConfigMap},
		Reference{v1alpha1.PrerequisitePriorityClass, "system-cluster-critical"}, Reference{v1alpha1.PrerequisitePriorityClass, "system-node-critical"}:
		return true
	}
	suffix := generatedByTrainJob[r.Kind]
	for _, owner := range wl.OwnerReferences {
		if owner.Kind == "TrainJob" && suffix != "" && r.Name == owner.Name+suffix {
			return true
		}
	}
	return false
}

func (r *references) add(kind v1alpha1.PrerequisiteKind, name string) {
	if name != "" && slices.Contains(r.kinds, kind) {
		r.found = append(r.found, Reference{kind, name})
	}
}

// addRequired adds an object unless the reference to it is optional.
func (r *references) addRequired(kind v1alpha1.PrerequisiteKind, name string, optional *bool) {
	if optional == nil || !*optional {
		r.add(kind, name)
	}
}

func (r *references) addSecret(ref *corev1.LocalObjectReference) {
	if ref != nil {
		r.add(v1alpha1.PrerequisiteSecret, ref.Name)
	}
}

func (r *references) addPod(spec *corev1.PodSpec) {
	r.add(v1alpha1.PrerequisiteServiceAccount, cmp.Or(spec.ServiceAccountName, spec.DeprecatedServiceAccount))
	r.add(v1alpha1.PrerequisitePriorityClass, spec.PriorityClassName)
	if spec.RuntimeClassName != nil {
		r.add(v1alpha1.PrerequisiteRuntimeClass, *spec.RuntimeClassName)
	}
	for _, claim := range spec.ResourceClaims {
		if claim.ResourceClaimTemplateName != nil {
			r.add(v1alpha1.PrerequisiteResourceClaimTemplate, *claim.ResourceClaimTemplateName)
		}
	}
	for i := range spec.InitContainers {
		r.addContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		r.addContainer(&spec.Containers[i])
	}
	for i := range spec.Volumes {
		r.addVolume(&spec.Volumes[i].VolumeSource)
	}
}

func (r *references) addContainer(c *corev1.Container) {
	for _, from := range c.EnvFrom {
		if ref := from.ConfigMapRef; ref != nil {
			r.addRequired(v1alpha1.PrerequisiteConfigMap, ref.Name, ref.Optional)
		}
		if ref := from.SecretRef; ref != nil {
			r.addRequired(v1alpha1.PrerequisiteSecret, ref.Name, ref.Optional)
		}
	}
	for _, env := range c.Env {
		if env.ValueFrom == nil {
			continue
		}
		if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
			r.addRequired(v1alpha1.PrerequisiteConfigMap, ref.Name, ref.Optional)
		}
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			r.addRequired(v1alpha1.PrerequisiteSecret, ref.Name, ref.Optional)
		}
	}
}

// addVolume adds what a volume refers to. The claim of an ephemeral volume is created with the
// pod.
func (r *references) addVolume(v *corev1.VolumeSource) {
	if v.ConfigMap != nil {
		r.addRequired(v1alpha1.PrerequisiteConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional)
	}
	if v.Secret != nil {
		r.addRequired(v1alpha1.PrerequisiteSecret, v.Secret.SecretName, v.Secret.Optional)
	}
	if v.PersistentVolumeClaim != nil {
		r.add(v1alpha1.PrerequisitePersistentVolumeClaim, v.PersistentVolumeClaim.ClaimName)
	}
	if v.Projected != nil {
		for _, source := range v.Projected.Sources {
			if source.ConfigMap != nil {
				r.addRequired(v1alpha1.PrerequisiteConfigMap, source.ConfigMap.Name, source.ConfigMap.Optional)
			}
			if source.Secret != nil {
				r.addRequired(v1alpha1.PrerequisiteSecret, source.Secret.Name, source.Secret.Optional)
			}
		}
	}
	r.addStorageSecrets(v)
}

// addStorageSecrets adds the Secrets with which a volume is mounted.
func (r *references) addStorageSecrets(v *corev1.VolumeSource) {
	if v.CSI != nil {
		r.addSecret(v.CSI.NodePublishSecretRef)
	}
	if v.FlexVolume != nil {
		r.addSecret(v.FlexVolume.SecretRef)
	}
	if v.ISCSI != nil {
		r.addSecret(v.ISCSI.SecretRef)
	}
	if v.CephFS != nil {
		r.addSecret(v.CephFS.SecretRef)
	}
	if v.RBD != nil {
		r.addSecret(v.RBD.SecretRef)
	}
	if v.AzureFile != nil {
		r.add(v1alpha1.PrerequisiteSecret, v.AzureFile.SecretName)
	}
}
