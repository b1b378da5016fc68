package trial

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Fits reports whether a pod may run on nodes with the node selector of a model: its own node
// selector and required node affinity don't contradict it.
func Fits(spec *corev1.PodSpec, model v1alpha1.TrialModel) bool {
	for key, value := range model.NodeSelector {
		if own, ok := spec.NodeSelector[key]; ok && own != value {
			return false
		}
	}
	if spec.NodeName != "" {
		return false
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool { return !contradicts(term, model.NodeSelector) })
}

// contradicts reports whether no node with the labels matches the term.
func contradicts(term corev1.NodeSelectorTerm, labels map[string]string) bool {
	return slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
		value, ok := labels[e.Key]
		if !ok {
			return false
		}
		switch e.Operator {
		case corev1.NodeSelectorOpIn:
			return !slices.Contains(e.Values, value)
		case corev1.NodeSelectorOpNotIn:
			return slices.Contains(e.Values, value)
		case corev1.NodeSelectorOpDoesNotExist:
			return true
		default:
			return false
		}
	})
}

// SharedState states what the copies of a pod would share with each other and with the job; empty =
// nothing that they can write to.
func SharedState(spec *corev1.PodSpec) string {
	for _, claim := range spec.ResourceClaims {
		if claim.ResourceClaimName != nil {
			return fmt.Sprintf("copies would share the ResourceClaim %s", *claim.ResourceClaimName)
		}
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; !isOwnOrReadOnly(&v.VolumeSource) && isWritten(spec, v.Name) {
			return fmt.Sprintf("copies would write to the volume %s, which is not mounted with readOnly: true", v.Name)
		}
	}
	return ""
}

// isOwnOrReadOnly reports whether each pod has a volume of its own, or none can write to it.
func isOwnOrReadOnly(v *corev1.VolumeSource) bool {
	return v.EmptyDir != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil || v.Image != nil || v.Ephemeral != nil ||
		v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
}

// isWritten reports whether a container can write to a volume.
func isWritten(spec *corev1.PodSpec, volume string) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume && !m.ReadOnly }) ||
			slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume })
	})
}
