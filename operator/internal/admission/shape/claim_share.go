package shape

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Capacities of a device that are the memory in bytes and the cores in hundredths of the device. A
// name may have the domain of the driver in front.
const (
	capacityMemory = "memory"
	capacityCores  = "cores"
)

// unknownClaim is the share of a pod whose claim the gate cannot read: unused devices.
var unknownClaim = Share{MemoryPercent: 100, CorePercent: 100, Claimed: true}

// ClaimTemplates returns the names of the ResourceClaimTemplates of a pod.
func ClaimTemplates(spec *corev1.PodSpec) (names []string) {
	for _, claim := range spec.ResourceClaims {
		if claim.ResourceClaimTemplateName != nil {
			names = append(names, *claim.ResourceClaimTemplateName)
		}
	}
	return names
}

// shareOfClaim returns the share of each device of a pod whose only claim is of a template, and what
// the gate does not measure of it. templates returns the claim of a template, or nil if there is
// none.
func shareOfClaim(spec *corev1.PodSpec, templates func(name string) *resourcev1.ResourceClaimSpec) (share Share, unmeasured []string) {
	claim := spec.ResourceClaims[0]
	if claim.ResourceClaimTemplateName == nil {
		return unknownClaim, nil
	}
	template := templates(*claim.ResourceClaimTemplateName)
	if template == nil {
		return unknownClaim, []string{"ResourceClaimTemplate " + *claim.ResourceClaimTemplateName + ", which does not exist"}
	}
	var shares []Share
	for i := range template.Devices.Requests {
		for _, capacity := range capacitiesOf(&template.Devices.Requests[i]) {
			s, others := shareOfCapacity(capacity)
			shares = append(shares, s)
			for _, name := range others {
				unmeasured = append(unmeasured, "claim "+claim.Name+": capacity "+name)
			}
		}
	}
	shares = slices.Compact(shares)
	if len(shares) != 1 { // the default of a device is unknown here, so that requests cannot be compared
		return largestOf(shares), unmeasured
	}
	return shares[0], unmeasured
}

// capacitiesOf returns the capacity that a request, or each of its alternatives, consumes of a device.
// A request with admin access consumes nothing.
func capacitiesOf(r *resourcev1.DeviceRequest) (all []*resourcev1.CapacityRequirements) {
	if exactly := r.Exactly; exactly != nil && (exactly.AdminAccess == nil || !*exactly.AdminAccess) {
		all = append(all, exactly.Capacity)
	}
	for i := range r.FirstAvailable {
		all = append(all, r.FirstAvailable[i].Capacity)
	}
	return all
}

// shareOfCapacity returns the share that a request states, and the names of its other capacities. A
// claim without a request of memory consumes the device's default, which is all of it unless the
// driver sets another.
func shareOfCapacity(c *resourcev1.CapacityRequirements) (s Share, others []string) {
	s = Share{MemoryPercent: 100, Claimed: true}
	if c == nil {
		return s, nil
	}
	for _, name := range slices.SortedFunc(maps.Keys(c.Requests), func(a, b resourcev1.QualifiedName) int { return cmp.Compare(a, b) }) {
		quantity := c.Requests[name]
		switch short := string(name)[strings.LastIndex(string(name), "/")+1:]; short {
		case capacityMemory:
			if s.Memory = atMost(quantity, maxRequest<<20); s.Memory > 0 {
				s.MemoryPercent = 0
			}
		case capacityCores:
			s.CorePercent = atMost(quantity, maxRequest)
		default:
			others = append(others, string(name))
		}
	}
	return s, others
}

// atMost returns a quantity as a whole number from 0 to limit, rounded up. It computes with floats:
// Quantity.Value of a large negative amount overflows. Limits are far below 2^53.
func atMost(q resource.Quantity, limit int64) int64 {
	const rounding = 1e-6 // of fractions such as 5000000000n
	return int64(math.Ceil(min(max(q.AsApproximateFloat64()-rounding, 0), float64(limit))))
}

// largestOf returns the largest request of each dimension, if all requests state both. Otherwise it
// returns unused devices.
func largestOf(shares []Share) Share {
	var largest Share
	for _, s := range shares {
		if s.Memory == 0 || s.CorePercent == 0 {
			return unknownClaim
		}
		largest = Share{Memory: max(largest.Memory, s.Memory), CorePercent: max(largest.CorePercent, s.CorePercent), Claimed: true}
	}
	if len(shares) == 0 {
		return unknownClaim
	}
	return largest
}

// isCoveredBy reports whether a claim with share s consumes at most what one with the other share
// does, on every device. A device may round both up, but never the smaller one beyond the larger
// one. It consumes its own default for a dimension without a request.
func (s Share) isCoveredBy(other Share) bool {
	isAtMost := func(a, b int64) bool { return a == b || a > 0 && a < b }
	return s.Claimed && other.Claimed && (s.Memory > 0) == (other.Memory > 0) && isAtMost(s.Memory, other.Memory) && isAtMost(s.CorePercent, other.CorePercent)
}

// claimSlotsTaken is SlotsTaken where one share is of a claim. A device may round requests up by an
// amount that is unknown here.
func (s Share) claimSlotsTaken(other Share) (slots int64, ok bool) {
	switch {
	case other.isCoveredBy(s):
		return 1, true
	case s.CorePercent > 0:
		return max(1, 100/s.CorePercent), true
	case !s.Claimed:
		return s.slotsOfDevice()
	}
	return 0, false
}
