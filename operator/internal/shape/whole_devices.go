package shape

import (
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// WholeDevices returns the number of devices that the pods of an admitted workload hold: those of
// the admitted pods, without the pods whose devices Kueue has reclaimed since they ended. It
// returns false if metrics do not show each of them as a device of its own: pods without devices,
// MIG instances, shares, resource claims, and devices that the exporter does not measure.
func WholeDevices(wl *kueue.Workload) (int64, bool) {
	ended := map[kueue.PodSetReference]int64{}
	for _, r := range wl.Status.ReclaimablePods {
		ended[r.Name] = int64(r.Count)
	}
	var devices int64
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		perPod, ok := wholeDevicesOfPod(set)
		if !ok {
			return 0, false
		}
		pods := int64(set.Count)
		if assigned := assignmentOf(wl, set.Name); assigned != nil && assigned.Count != nil {
			pods = int64(*assigned.Count)
		}
		devices += perPod * max(0, pods-ended[set.Name])
	}
	return devices, devices > 0
}

func wholeDevicesOfPod(set *kueue.PodSet) (int64, bool) {
	if len(set.Template.Spec.ResourceClaims) > 0 {
		return 0, false
	}
	for _, name := range kaiAnnotations {
		if set.Template.Annotations[name] != "" {
			return 0, false
		}
	}
	var devices int64
	for name, n := range podResources(&set.Template.Spec) {
		switch {
		case n == 0 || !isDevice(name) && !isShareRequest(name):
		case isShareRequest(name) || !IsMeasured(string(name)) || strings.HasPrefix(string(name), migResourcePrefix) || devices > 0:
			return 0, false
		default:
			devices = n
		}
	}
	return devices, true
}
