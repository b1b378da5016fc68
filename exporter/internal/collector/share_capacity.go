package collector

import (
	"math"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Dimensions of plimsoll_device_share_capacity.
const (
	dimensionShares = "shares" // replicas
	dimensionMemory = "memory" // bytes
	dimensionCores  = "cores"  // 0..1 of the device
)

// providerMPS is the provider of replicas that MPS limits.
const providerMPS = "mps"

// amount is an amount of a dimension that a shared device offers, and how much of it is
// allocated.
type amount struct {
	dimension           string
	capacity, allocated float64
}

// renderShares writes what a shared device offers and what of it is allocated.
func (r *renderer) renderShares(d *deviceSnapshot, id labelText) {
	for _, name := range d.device.Names() {
		n := r.snapshot.pods.ReplicaCounts[name]
		if n.Allocatable == 0 {
			continue
		}
		provider, amounts := r.shareAmounts(d, n)
		for _, a := range amounts {
			r.families.addOfDevice(shareCapacity, a.capacity, id, provider, a.dimension)
			r.families.addOfDevice(shareAllocated, a.allocated, id, provider, a.dimension)
		}
	}
}

// shareAmounts returns the provider of a device's replicas and the amounts of each dimension
// that the provider limits. Time-slicing limits neither memory nor cores.
func (r *renderer) shareAmounts(d *deviceSnapshot, n podmap.ReplicaCount) (provider string, amounts []amount) {
	amounts = []amount{{dimensionShares, float64(n.Allocatable), float64(n.Allocated)}}
	mib, _ := d.reading.Get(device.FBTotal)
	memory := mib * (1 << 20)
	mode, _ := d.reading.Get(device.ComputeMode)
	switch {
	case !d.fresh || memory == 0:
		return n.Provider, amounts
	case n.Provider == podmap.ProviderHAMi:
		if used, ok := r.assignedByHAMi(d); ok {
			amounts = append(amounts, amount{dimensionMemory, memory, used.Memory}, amount{dimensionCores, 1, used.Cores})
		}
		return n.Provider, amounts
	case mode != device.ExclusiveProcess:
		return n.Provider, amounts
	}
	// MPS limits each replica to an equal part: whole MiB, and whole percents of the threads.
	count, allocated := float64(n.Allocatable), float64(n.Allocated)
	return providerMPS, append(amounts, amount{dimensionMemory, memory, allocated * math.Floor(mib/count) * (1 << 20)},
		amount{dimensionCores, 1, allocated * math.Floor(100/count) / 100})
}

// assignedByHAMi returns the sum of what HAMi assigned to the pods that hold a device. ok is
// false if the assignment of a pod is unknown.
func (r *renderer) assignedByHAMi(d *deviceSnapshot) (sum podmap.Assignment, ok bool) {
	if r.snapshot.podMeta == nil {
		return sum, false
	}
	counted := map[podName]bool{}
	for _, h := range d.holders {
		pod := podName{h.Namespace, h.Pod}
		if counted[pod] {
			continue
		}
		counted[pod] = true
		assigned := r.snapshot.podMeta[pod].HAMi
		if len(assigned) == 0 {
			return sum, false
		}
		for _, a := range assigned {
			if a.Device == d.device.UUID {
				sum.Memory += a.Memory
				sum.Cores += a.Cores
			}
		}
	}
	return sum, true
}
