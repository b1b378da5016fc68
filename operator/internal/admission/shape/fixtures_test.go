package shape

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const h100 = "NVIDIA-H100-80GB-HBM3"

// job returns a workload of pods pods with devices H100s each.
func job(uid string, devices, pods int64) Facts {
	return Facts{UID: uid, Namespace: "team-a", Name: uid, Queue: "gpu",
		PodSets: []PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: devices, Pods: pods}}}
}

// container returns a container that requests n of an extended resource, and CPU.
func container(name corev1.ResourceName, n string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{name: resource.MustParse(n), "cpu": resource.MustParse("4")},
		Limits:   corev1.ResourceList{name: resource.MustParse(n)}}}
}
