package shape

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Annotations with which a pod requests a part of devices from KAI Scheduler. Such a pod has no
// container that requests a device.
const (
	kaiFraction   = "gpu-fraction"             // of the memory of a device, such as 0.5
	kaiMemory     = "gpu-memory"               // MiB
	kaiNumDevices = "gpu-fraction-num-devices" // default 1
)

// kaiResource is the resource of the devices that KAI Scheduler shares.
const kaiResource = "nvidia.com/gpu"

// shareOfKAI returns the part of each device, and the number of devices, that a pod requests from KAI
// Scheduler. ok is false for a pod without a valid request. KAI Scheduler refuses a pod with both
// annotations, and one with an invalid value.
func shareOfKAI(template *corev1.PodTemplateSpec) (share Share, devices int64, ok bool) {
	fraction, memory := template.Annotations[kaiFraction], template.Annotations[kaiMemory]
	devices = 1
	if text, isSet := template.Annotations[kaiNumDevices]; isSet {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return Share{}, 0, false
		}
		devices = min(n, maxRequest)
	}
	if (fraction == "") == (memory == "") {
		return Share{}, 0, false
	}
	if fraction != "" {
		ratio, err := strconv.ParseFloat(fraction, 64)
		return Share{MemoryRatio: ratio}, devices, err == nil && ratio > 0 && ratio <= 1
	}
	mib, err := strconv.ParseInt(memory, 10, 64)
	return Share{Memory: min(mib, maxRequest) << 20}, devices, err == nil && mib > 0
}

// ratio returns the part of the memory of the device that a share without bytes requests.
func (s Share) ratio() float64 {
	if s.MemoryRatio > 0 {
		return s.MemoryRatio
	}
	return float64(s.MemoryPercent) / 100
}

// roundingOfMiB is the largest relative difference between a share of KAI Scheduler and what it
// counts: whole MiB of the memory of the device, which is at least 100 MiB for 1% of 10 GiB.
const roundingOfMiB = 0.01

// ratioSlotsTaken returns how many pods with the ratio of s a pod with the ratio of other displaces at
// most.
func (s Share) ratioSlotsTaken(other Share) int64 {
	a, b := s.ratio(), other.ratio()
	if b <= a {
		return 1
	}
	return int64(min(math.Ceil(b/a*(1+roundingOfMiB)), maxRequest))
}

// ratioSlotsOfDevice returns how many pods with the ratio of s a device can have at most.
func (s Share) ratioSlotsOfDevice() int64 {
	return int64(max(1, min(math.Floor((1+roundingOfMiB)/s.ratio()), maxRequest)))
}
