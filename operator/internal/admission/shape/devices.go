package shape

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Names that NVIDIA's device plugin gives to MIG instances and to time-shared devices.
const (
	migResourcePrefix    = "nvidia.com/mig-"
	sharedResourceSuffix = ".shared"
	sharedModelSuffix    = "-SHARED"
)

// isDevice reports whether an extended resource counts accelerators.
func isDevice(name corev1.ResourceName) bool {
	domain, kind, ok := strings.Cut(string(name), "/")
	if !ok {
		return false
	}
	switch domain {
	case "nvidia.com":
		return kind == "gpu" || kind == "gpu.shared" || strings.HasPrefix(kind, "mig-")
	case "amd.com":
		return isAMD(kind)
	case "cloud.google.com":
		return kind == "gpu"
	case "google.com":
		return kind == "tpu"
	case "gpu.intel.com":
		return kind == "i915" || kind == "xe"
	case "habana.ai":
		return strings.HasPrefix(kind, "gaudi")
	case "aws.amazon.com":
		return strings.HasPrefix(kind, "neuron")
	}
	return false
}

// isAMD reports whether AMD's device plugin counts GPUs or partitions of GPUs by this kind of
// resource, such as gpu and cpx_nps4.
func isAMD(kind string) bool {
	mode, _, partitioned := strings.Cut(kind, "_nps")
	return kind == "gpu" || partitioned && slices.Contains([]string{"spx", "dpx", "tpx", "qpx", "cpx"}, mode)
}

// IsMeasured reports whether the exporter measures how many devices of a resource are free.
// The exporter does not report free time-shared devices.
func IsMeasured(name string) bool {
	if kind, ok := strings.CutPrefix(name, "amd.com/"); ok {
		return isAMD(kind)
	}
	return name == "nvidia.com/gpu" || name == "google.com/tpu" || strings.HasPrefix(name, migResourcePrefix) && !strings.HasSuffix(name, sharedResourceSuffix)
}

// podDevices returns a pod's device resource and the number of requested devices. If a pod requests several device resources, the largest number counts. Resources
// without measurements count only if all is true.
func podDevices(spec *corev1.PodSpec, all bool) (corev1.ResourceName, int64) {
	var best corev1.ResourceName
	requests := podResources(spec)
	for name, n := range requests {
		if isDevice(name) && (all || IsMeasured(string(name))) && (n > requests[best] || n == requests[best] && name < best) {
			best = name
		}
	}
	return best, requests[best]
}

// claimedDevices returns the devices of a pod that has one resource claim. The Workload does not
// contain the claim, but Kueue counts its devices for the quota (deviceClassMappings): they are the
// device resource that Kueue assigned and that the pod does not request.
func claimedDevices(spec *corev1.PodSpec, assigned *kueue.PodSetAssignment, pods int64) (corev1.ResourceName, int64) {
	if len(spec.ResourceClaims) != 1 || assigned == nil || pods == 0 {
		return "", 0
	}
	requested := podResources(spec)
	for _, name := range slices.Sorted(maps.Keys(assigned.ResourceUsage)) {
		usage := assigned.ResourceUsage[name]
		if n := usage.Value(); isDevice(name) && requested[name] == 0 && n > 0 && n%pods == 0 {
			return name, n / pods
		}
	}
	return "", 0
}

// unmeasuredRequests returns the extended resources, resource claims and shares that a pod
// requests in addition to what p holds of them.
func unmeasuredRequests(template *corev1.PodTemplateSpec, p PodSet) []string {
	var names []string
	requests := podResources(&template.Spec)
	for name, n := range requests {
		if n > 0 && string(name) != p.Resource && (p.Share == nil || !isShareRequest(name)) {
			names = append(names, string(name))
		}
	}
	isClaimed := p.isClaimed(&template.Spec)
	for _, claim := range template.Spec.ResourceClaims {
		if !isClaimed {
			names = append(names, "claim "+claim.Name)
		}
	}
	for _, name := range kaiAnnotations {
		if template.Annotations[name] != "" && !p.isOfKAI(&template.Spec) {
			names = append(names, "annotation "+name)
		}
	}
	return names
}

// isClaimed reports whether the devices of the pods are those of their resource claim.
func (p PodSet) isClaimed(spec *corev1.PodSpec) bool {
	return p.Resource != "" && len(spec.ResourceClaims) > 0 && podResources(spec)[corev1.ResourceName(p.Resource)] == 0 && !p.isOfKAI(spec)
}

// isOfKAI reports whether annotations of KAI Scheduler request the share of the pods: no container
// requests a device, and no claim has one. Such a pod may have a claim on something else.
func (p PodSet) isOfKAI(spec *corev1.PodSpec) bool {
	return p.Share != nil && !p.Share.Claimed && p.Share.MemoryPercent == 0 && podResources(spec)[corev1.ResourceName(p.Resource)] == 0
}

// podResources returns a pod's requests of extended resources, as Kubernetes computes them.
func podResources(spec *corev1.PodSpec) map[corev1.ResourceName]int64 {
	return sumOfPod(spec, isExtended)
}

func isExtended(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

// sumOfPod returns a pod's requests of the resources to keep: the sum over containers and sidecars, or the largest
// init container if that is more. An init container runs beside the sidecars that are declared before it.
func sumOfPod(spec *corev1.PodSpec, keep func(corev1.ResourceName) bool) map[corev1.ResourceName]int64 {
	sidecars, largestInit := map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addRequests(sidecars, &c.Resources, keep)
			continue
		}
		requests := maps.Clone(sidecars)
		addRequests(requests, &c.Resources, keep)
		for name, n := range requests {
			largestInit[name] = max(largestInit[name], n)
		}
	}
	sum := sidecars
	for i := range spec.Containers {
		addRequests(sum, &spec.Containers[i].Resources, keep)
	}
	for name, n := range largestInit {
		sum[name] = max(sum[name], n)
	}
	return sum
}

// maxRequest bounds the request of a pod, so that sums over pods and bytes stay within an int64: a
// sum that overflows would look like a pod without devices. No node has as many devices, and no
// device has a PiB of memory.
const maxRequest = 1 << 30

// limitOf returns maxRequest, which is in MiB for memory.
func limitOf(name corev1.ResourceName) int64 {
	if name == corev1.ResourceMemory {
		return maxRequest << 20
	}
	return maxRequest
}

// addRequests adds the requests of one container. A template may state the limits only: they are
// the requests then, and those of extended resources are always equal.
func addRequests(sum map[corev1.ResourceName]int64, r *corev1.ResourceRequirements, keep func(corev1.ResourceName) bool) {
	add := func(name corev1.ResourceName, quantity resource.Quantity) {
		if keep(name) {
			sum[name] = min(sum[name]+amountOf(name, quantity), limitOf(name))
		}
	}
	for name, quantity := range r.Requests {
		add(name, quantity)
	}
	for name, quantity := range r.Limits {
		if _, requested := r.Requests[name]; !requested {
			add(name, quantity)
		}
	}
}

// amountOf returns a request from 0 to the limit, rounded up: thousandths of cores, bytes or devices.
func amountOf(name corev1.ResourceName, quantity resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		if quantity.CmpInt64(maxRequest/1000) > 0 { // MilliValue would overflow
			return maxRequest
		}
		return max(quantity.MilliValue(), 0)
	}
	return min(max(quantity.Value(), 0), limitOf(name))
}
