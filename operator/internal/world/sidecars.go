package world

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// A sidecar is a restartable init container. It runs from before the other init containers until the end of the
// pod, so that its requests count beside all others.

// addSidecar moves a part of the devices of a pod from its container to a sidecar.
func (j *Job) addSidecar(pod *corev1.PodSpec) {
	if j.SidecarDevices == 0 && j.SidecarCPU == 0 {
		return
	}
	requests, name := corev1.ResourceList{}, corev1.ResourceName(j.Resource)
	if j.SidecarCPU > 0 {
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(j.SidecarCPU, resource.DecimalSI)
	}
	sidecar := corev1.Container{Name: "sidecar", Image: "example.com/sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
	if j.SidecarDevices > 0 {
		requests[name] = *resource.NewQuantity(j.SidecarDevices, resource.DecimalSI)
		sidecar.Resources.Limits = corev1.ResourceList{name: requests[name]}
		rest := *resource.NewQuantity(j.Devices-j.SidecarDevices, resource.DecimalSI)
		pod.Containers[0].Resources.Requests[name], pod.Containers[0].Resources.Limits[name] = rest, rest
	}
	sidecar.Resources.Requests = requests
	pod.InitContainers = append([]corev1.Container{sidecar}, pod.InitContainers...)
}

// devicesOfPod are the devices that Kueue and kube-scheduler count for a pod whose init containers request none, but
// for sidecars.
func devicesOfPod(pod *corev1.PodSpec, name corev1.ResourceName) int64 {
	sum := int64(0)
	for i := range pod.Containers {
		q := pod.Containers[i].Resources.Requests[name]
		sum += q.Value()
	}
	for i := range pod.InitContainers {
		if q, ok := pod.InitContainers[i].Resources.Requests[name]; ok && pod.InitContainers[i].RestartPolicy != nil {
			sum += q.Value()
		}
	}
	return sum
}

// makeSidecars gives some pods a sidecar.
func makeSidecars(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x73696465))} // of its own, so that the rest of a seed's world stays the same
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if !g.chance(.05) {
			continue
		}
		if j.Devices > 1 {
			j.SidecarDevices = 1 + g.Int64N(j.Devices-1)
		}
		if j.CPU > 0 {
			j.SidecarCPU = 500
			fit(s, j)
		}
	}
}
