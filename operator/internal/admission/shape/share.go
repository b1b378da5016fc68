package shape

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Share is the part of each device that a pod requests. A dimension without a request is 0: the
// pod has no limit there. One of Memory, MemoryPercent and MemoryRatio is set.
type Share struct {
	// Memory in bytes.
	Memory int64 `json:"memory,omitempty"`
	// MemoryPercent is the percentage of the memory of the device; 100 for a whole device.
	MemoryPercent int64 `json:"memoryPercent,omitempty"`
	// MemoryRatio is the part of the memory of the device, above 0 and at most 1, for a pod of KAI
	// Scheduler.
	MemoryRatio float64 `json:"memoryRatio,omitempty"`
	// CorePercent is the percentage of the cores of the device.
	CorePercent int64 `json:"corePercent,omitempty"`
	// Claimed: the request is that of a resource claim. A device may round it up, and a dimension
	// without a request consumes the device's default.
	Claimed bool `json:"claimed,omitempty"`
}

// wholeDevice is the share of a pod that states no memory.
var wholeDevice = Share{MemoryPercent: 100}

// Names of the variables of a share.
const (
	varShareMemory      = "share_memory"
	varShareMemoryRatio = "share_memory_ratio"
	varShareCores       = "share_cores"
)

// Resources of HAMi that state the share of each device of the same container.
const (
	hamiMemory        = "nvidia.com/gpumem" // MiB
	hamiMemoryPercent = "nvidia.com/gpumem-percentage"
	hamiCores         = "nvidia.com/gpucores" // percent
)

// kaiAnnotations are the annotations with which a pod requests a share from KAI Scheduler.
var kaiAnnotations = []string{kaiFraction, kaiMemory}

// fitsShares reports whether a gate's own fit query reads the share of a pod.
func fitsShares(fit string) bool { return strings.Contains(fit, "$share_") }

// shareOf returns the share of each device of a pod. If the containers differ, the largest request
// of each dimension counts. A pod that states no memory requests that of the whole device, as with
// HAMi.
//
// For a pod whose devices are those of a claim, see shareOfClaim. If no template can be read, it
// holds whole devices.
func shareOf(spec *corev1.PodSpec, resource corev1.ResourceName) *Share {
	var share Share
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			requests := map[corev1.ResourceName]int64{}
			addRequests(requests, &containers[i].Resources, isExtended)
			if requests[resource] > 0 {
				share = share.max(shareOfContainer(requests))
			}
		}
	}
	if share == (Share{}) {
		share = wholeDevice
	}
	return &share
}

func shareOfContainer(requests map[corev1.ResourceName]int64) Share {
	s := Share{Memory: requests[hamiMemory] << 20, CorePercent: requests[hamiCores]}
	if s.Memory == 0 {
		s.MemoryPercent = requests[hamiMemoryPercent]
	}
	if s.Memory == 0 && s.MemoryPercent == 0 {
		s.MemoryPercent = wholeDevice.MemoryPercent
	}
	return s
}

// max returns the larger request of each dimension. A percentage and bytes cannot be compared
// without the size of the device: together they count as a whole device.
func (s Share) max(other Share) Share {
	s.CorePercent = max(s.CorePercent, other.CorePercent)
	s.Memory, s.MemoryPercent = max(s.Memory, other.Memory), max(s.MemoryPercent, other.MemoryPercent)
	if s.Memory > 0 && s.MemoryPercent > 0 {
		s.Memory, s.MemoryPercent = 0, 100
	}
	return s
}

// isShareRequest reports whether a resource states the size of a share.
func isShareRequest(name corev1.ResourceName) bool {
	return name == hamiMemory || name == hamiMemoryPercent || name == hamiCores
}

// addVars adds the variables of a share: bytes, and ratios of the device.
func (s Share) addVars(vars map[string]string) {
	vars[varShareMemory] = strconv.FormatInt(s.Memory, 10)
	vars[varShareMemoryRatio] = strconv.FormatFloat(s.ratio(), 'g', -1, 64)
	vars[varShareCores] = strconv.FormatFloat(float64(s.CorePercent)/100, 'g', -1, 64)
}

// appendKey appends the share to an equivalence key.
func (s *Share) appendKey(key []byte) []byte {
	if s == nil {
		return key
	}
	for _, n := range []int64{s.Memory, s.MemoryPercent, s.CorePercent} {
		key = strconv.AppendInt(append(key, 's'), n, 10)
	}
	if s.Claimed {
		key = append(key, 'c')
	}
	if s.MemoryRatio > 0 {
		key = strconv.AppendFloat(append(key, 'r'), s.MemoryRatio, 'g', -1, 64)
	}
	return key
}

// equal reports whether two shares are the same. nil is a device that is not shared.
func (s *Share) equal(other *Share) bool {
	return s == other || s != nil && other != nil && *s == *other
}

// String returns the share for messages: 3000 MiB and 30% of the cores.
func (s Share) String() string {
	text := fmt.Sprintf("%g%% of the memory", math.Round(s.ratio()*1e6)/1e4)
	switch {
	case s.Memory > 0:
		text = fmt.Sprintf("%d MiB", s.Memory>>20)
	case s.Claimed && s.CorePercent < 100:
		text = "the device's default of memory"
	}
	if s.CorePercent > 0 {
		text += fmt.Sprintf(" and %d%% of the cores", s.CorePercent)
	}
	return text
}

// SlotsTaken returns how many pods with share s a pod with another share displaces at most on a
// device. ok is false if the number depends on the size of the device, because one requests bytes
// and the other a percentage.
func (s Share) SlotsTaken(other Share) (slots int64, ok bool) {
	if s.Claimed || other.Claimed {
		return s.claimSlotsTaken(other)
	}
	limit, limited := s.slotsOfDevice()
	if (s.Memory > 0) != (other.Memory > 0) {
		return limit, limited
	}
	slots = 1 // a replica
	if s.CorePercent > 0 {
		slots = max(slots, ceilDiv(other.CorePercent, s.CorePercent))
	}
	switch {
	case s.Memory > 0:
		slots = max(slots, ceilDiv(other.Memory, s.Memory))
	case s.MemoryRatio > 0 || other.MemoryRatio > 0:
		slots = max(slots, s.ratioSlotsTaken(other))
	default:
		slots = max(slots, ceilDiv(other.MemoryPercent, s.MemoryPercent))
	}
	if limited {
		slots = min(slots, limit)
	}
	return slots, true
}

// SlotsReturned returns how many pods with share s can start at least when a pod with another
// share leaves a device.
func (s Share) SlotsReturned(other Share) int64 {
	if s.Claimed || other.Claimed {
		if s.isCoveredBy(other) {
			return 1
		}
		return 0
	}
	if (s.Memory > 0) != (other.Memory > 0) {
		return 0
	}
	slots := int64(1) // a replica
	if s.CorePercent > 0 {
		slots = min(slots, other.CorePercent/s.CorePercent)
	}
	if s.Memory > 0 {
		return min(slots, other.Memory/s.Memory)
	}
	if s.MemoryRatio > 0 || other.MemoryRatio > 0 {
		if other.ratio() < s.ratio() {
			return 0
		}
		return slots
	}
	return min(slots, other.MemoryPercent/s.MemoryPercent)
}

// slotsOfDevice returns how many pods with share s a device can have at most. ok is false if its
// size is unknown.
func (s Share) slotsOfDevice() (slots int64, ok bool) {
	if s.MemoryRatio > 0 {
		return s.ratioSlotsOfDevice(), true
	}
	percent := max(s.MemoryPercent, s.CorePercent)
	if percent == 0 {
		return 0, false
	}
	return max(1, 100/percent), true
}

func ceilDiv(a, b int64) int64 { return a/b + min(a%b, 1) }
