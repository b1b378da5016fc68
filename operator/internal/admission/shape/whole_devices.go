package shape

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// WholeDevices returns the resource and the number of the devices that an admitted workload holds. Pods
// that have ended count, too: metrics may still show their devices as idle, and these must not stand
// in for busy ones. WholeDevices returns false if metrics do not show each of them as a device of its
// own: pods without devices, MIG instances, shares, resource claims, and devices that the exporter does
// not measure; and if the pods hold devices of several resources.
func WholeDevices(wl *kueue.Workload) (resource string, devices int64, ok bool) {
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		name, perPod, ok := wholeDevicesOfPod(set)
		if !ok || resource != "" && name != "" && resource != name {
			return "", 0, false
		}
		pods := int64(set.Count)
		if assigned := assignmentOf(wl, set.Name); assigned != nil && assigned.Count != nil {
			pods = int64(*assigned.Count)
		}
		resource = cmp.Or(resource, name)
		devices += perPod * max(0, pods)
	}
	return resource, devices, devices > 0
}

// RequestsPerDevice returns the CPU and memory that the pods of a workload free with each of their devices, at least.
func RequestsPerDevice(wl *kueue.Workload) (least Requests) {
	isFirst := true
	for i := range wl.Spec.PodSets {
		spec := &wl.Spec.PodSets[i].Template.Spec
		_, devices := podDevices(spec, false)
		if devices == 0 {
			continue
		}
		each := requestsOf(spec)
		each.MilliCPU, each.Memory = each.MilliCPU/devices, each.Memory/devices
		if isFirst {
			least, isFirst = each, false
		}
		least.MilliCPU, least.Memory = min(least.MilliCPU, each.MilliCPU), min(least.Memory, each.Memory)
	}
	return least
}

// FlavorOf returns the ResourceFlavor from which all pods of a workload have a resource. It is empty
// if they have it from several, or if Kueue assigned none.
func FlavorOf(wl *kueue.Workload, resource string) string {
	if wl.Status.Admission == nil {
		return ""
	}
	flavor := ""
	for i := range wl.Status.Admission.PodSetAssignments {
		assigned := string(wl.Status.Admission.PodSetAssignments[i].Flavors[corev1.ResourceName(resource)])
		if assigned != "" && flavor != "" && assigned != flavor {
			return ""
		}
		flavor = cmp.Or(flavor, assigned)
	}
	return flavor
}

// ExtendedResources returns the extended resources that the pods of a workload request.
func ExtendedResources(wl *kueue.Workload) []string {
	var names []string
	for i := range wl.Spec.PodSets {
		for name, n := range podResources(&wl.Spec.PodSets[i].Template.Spec) {
			if n > 0 && !slices.Contains(names, string(name)) {
				names = append(names, string(name))
			}
		}
	}
	return names
}

func wholeDevicesOfPod(set *kueue.PodSet) (resource string, devices int64, ok bool) {
	if len(set.Template.Spec.ResourceClaims) > 0 {
		return "", 0, false
	}
	for _, name := range kaiAnnotations {
		if set.Template.Annotations[name] != "" {
			return "", 0, false
		}
	}
	for name, n := range podResources(&set.Template.Spec) {
		switch {
		case n == 0 || !isDevice(name) && !isShareRequest(name):
		case isShareRequest(name) || !IsMeasured(string(name)) || strings.HasPrefix(string(name), migResourcePrefix) || devices > 0:
			return "", 0, false
		default:
			resource, devices = string(name), n
		}
	}
	return resource, devices, true
}
