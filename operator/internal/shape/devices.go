package shape

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// How NVIDIA's device plugin names resources and models of instances and of devices
// that several pods share.
const (
	migResource    = "nvidia.com/mig-"
	sharedResource = ".shared"
	sharedModel    = "-SHARED"
)

// isDevice says whether an extended resource counts accelerators.
func isDevice(name corev1.ResourceName) bool {
	domain, kind, ok := strings.Cut(string(name), "/")
	if !ok {
		return false
	}
	switch domain {
	case "nvidia.com":
		return kind == "gpu" || kind == "gpu.shared" || strings.HasPrefix(kind, "mig-")
	case "amd.com", "cloud.google.com":
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

// told says whether the exporter tells how many devices of a resource are free. Of
// shared devices, no part of which is a free device, it does not.
func isMeasured(name corev1.ResourceName) bool {
	s := string(name)
	return s == "nvidia.com/gpu" || s == "google.com/tpu" || strings.HasPrefix(s, migResource) && !strings.HasSuffix(s, sharedResource)
}

// podDevices counts the devices of one pod: what its containers hold together,
// or more where an init container asks for more. Of several device resources
// the largest counts, unless all is set only of those that the exporter tells of.
func podDevices(spec *corev1.PodSpec, all bool) (corev1.ResourceName, int64) {
	var best corev1.ResourceName
	asked := podResources(spec)
	for name, n := range asked {
		if isDevice(name) && (all || isMeasured(name)) && (n > asked[best] || n == asked[best] && name < best) {
			best = name
		}
	}
	return best, asked[best]
}

// unmeasured are the extended resources and the claims that a pod asks for, but the one
// resource that counts.
func unmeasuredResources(spec *corev1.PodSpec, counts string) []string {
	var names []string
	for name, n := range podResources(spec) {
		if n > 0 && string(name) != counts {
			names = append(names, string(name))
		}
	}
	for _, claim := range spec.ResourceClaims {
		names = append(names, "claim "+claim.Name)
	}
	return names
}

// podResources are the extended resources that one pod asks for.
func podResources(spec *corev1.PodSpec) map[corev1.ResourceName]int64 {
	together, initial := map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
	for i := range spec.Containers {
		addExtended(together, &spec.Containers[i])
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addExtended(together, c)
			continue
		}
		one := map[corev1.ResourceName]int64{}
		addExtended(one, c)
		for name, n := range one {
			initial[name] = max(initial[name], n)
		}
	}
	for name, n := range initial {
		together[name] = max(together[name], n)
	}
	return together
}

// addExtended adds one container's. Requests equal limits for extended
// resources, and either may stand alone in a template.
func addExtended(sum map[corev1.ResourceName]int64, c *corev1.Container) {
	for name, quantity := range c.Resources.Limits {
		if strings.Contains(string(name), "/") {
			sum[name] += quantity.Value()
		}
	}
	for name, quantity := range c.Resources.Requests {
		if _, limited := c.Resources.Limits[name]; strings.Contains(string(name), "/") && !limited {
			sum[name] += quantity.Value()
		}
	}
}
