package collector

import (
	"maps"
	"math"
	"slices"

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

// amount is an amount of a dimension that a shared device offers, how much of it is allocated,
// and to which pods. A pod without a limit is not in pods.
type amount struct {
	dimension           string
	capacity, allocated float64
	pods                map[podName]float64
}

// renderShares writes what a shared device offers and what of it is allocated. It writes nothing
// if the device is also held in another way, or may have MIG instances: what is left for replicas is
// unknown then.
func (r *renderer) renderShares(d *deviceSnapshot, id labelText) {
	isMixed := func(name string) bool { return r.snapshot.pods.Mixed[name] }
	if d.mayBePartitioned() || slices.ContainsFunc(d.device.Names(), isMixed) {
		return
	}
	withSeries := podsWithSeries([]*deviceSnapshot{d})
	for _, name := range d.device.Names() {
		n := r.snapshot.pods.ReplicaCounts[name]
		if n.Allocatable == 0 {
			continue
		}
		provider, amounts := r.shareAmounts(d, n)
		for _, a := range amounts {
			r.addAmount(id, provider, a, withSeries)
		}
	}
}

// addAmount writes an amount of a device. withSeries are the pods with series of their own, nil for
// all.
func (r *renderer) addAmount(id labelText, provider string, a amount, withSeries map[podName]bool) {
	r.families.addOfDevice(shareCapacity, a.capacity, id, provider, a.dimension)
	r.families.addOfDevice(shareAllocated, a.allocated, id, provider, a.dimension)
	for _, pod := range slices.SortedFunc(maps.Keys(a.pods), podName.compare) {
		if withSeries == nil || withSeries[pod] {
			r.families.addOfDevice(podShare, a.pods[pod], id, pod.namespace, pod.name, provider, a.dimension)
		}
	}
}

// shareAmounts returns the provider of a device's replicas and the amounts of each dimension
// that the provider limits. Time-slicing limits neither memory nor cores.
func (r *renderer) shareAmounts(d *deviceSnapshot, n podmap.ReplicaCount) (provider string, amounts []amount) {
	replicas := replicasByPod(r.snapshot.pods, []*deviceSnapshot{d})
	// equal returns an amount of which each allocated replica has the same part.
	equal := func(dimension string, capacity, part float64) amount {
		a := amount{dimension, capacity, part * float64(n.Allocated), map[podName]float64{}}
		for pod, count := range replicas {
			a.pods[pod] = part * float64(count)
		}
		return a
	}
	amounts = []amount{equal(dimensionShares, float64(n.Allocatable), 1)}
	mib, _ := d.reading.Get(device.FBTotal)
	memory := mib * (1 << 20)
	mode, _ := d.reading.Get(device.ComputeMode)
	switch {
	case !d.fresh || memory == 0:
		return n.Provider, amounts
	case n.Provider == podmap.ProviderHAMi:
		return n.Provider, append(amounts, r.assignedByHAMi(d, memory)...)
	case mode != device.ExclusiveProcess:
		return n.Provider, amounts
	}
	// MPS limits each replica to an equal part: whole MiB, and whole percents of the threads.
	count := float64(n.Allocatable)
	return providerMPS, append(amounts, equal(dimensionMemory, memory, math.Floor(mib/count)*(1<<20)),
		equal(dimensionCores, 1, math.Floor(100/count)/100))
}

// assignedByHAMi returns what HAMi assigned to the containers that hold a device, or nil if the
// assignment of any container on the node is unknown or contradicts the kubelet: HAMi may have given
// it this device, whichever the kubelet reports. memory is that of the device
// in bytes. HAMi limits the memory of each container, so an assignment without memory is forged,
// and says nothing about the memory that the container can take.
func (r *renderer) assignedByHAMi(d *deviceSnapshot, memory float64) []amount {
	if r.snapshot.podMeta == nil || !r.snapshot.pods.IsHAMiKnown() {
		return nil
	}
	bytes := amount{dimensionMemory, memory, 0, map[podName]float64{}}
	cores := amount{dimensionCores, 1, 0, map[podName]float64{}}
	if d.holderWithoutMemory(r.snapshot.pods) != "" {
		return nil
	}
	for _, h := range d.allHolders {
		for _, a := range r.snapshot.pods.Assigned[h].Devices {
			if a.Device == d.device.UUID {
				bytes.add(podName{h.Namespace, h.Pod}, a.Memory)
				cores.add(podName{h.Namespace, h.Pod}, a.Cores)
			}
		}
	}
	return []amount{bytes, cores}
}

// holderWithoutMemory returns the first container that holds a device and to which HAMi assigned
// none of its memory, as namespace/pod/container. It is empty if there is none.
func (d *deviceSnapshot) holderWithoutMemory(pods podmap.Map) string {
	for _, h := range d.allHolders {
		for _, a := range pods.Assigned[h].Devices {
			if a.Device == d.device.UUID && a.Memory == 0 {
				return h.Namespace + "/" + h.Pod + "/" + h.Container
			}
		}
	}
	return ""
}

// add allocates a part to a pod. A part of 0 is no limit. No pod, and not all of them together,
// get more than the device has: HAMi can assign more memory than that (deviceMemoryScaling), and
// so can a forged annotation. Nothing is free then.
func (a *amount) add(pod podName, part float64) {
	if part > 0 {
		a.allocated = min(a.allocated+part, a.capacity)
		a.addToPod(pod, part)
	}
}

// addToPod adds to the part of a pod only. A part of 0 is no limit.
func (a *amount) addToPod(pod podName, part float64) {
	if part > 0 {
		a.pods[pod] = min(a.pods[pod]+part, a.capacity)
	}
}
