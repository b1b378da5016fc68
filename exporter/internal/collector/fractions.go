package collector

import (
	"math"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// providerKAI is the provider of shares that KAI Scheduler assigns.
const providerKAI = "kai"

// kaiResource is the resource of the devices that KAI Scheduler shares.
const kaiResource = "nvidia.com/gpu"

// renderFractions writes what a device offers to pods of KAI Scheduler: a reserved device, or one
// that it can reserve. The memory counts in whole hundreds of MiB, as for KAI Scheduler.
func (r *renderer) renderFractions(d *deviceSnapshot, id labelText) {
	mib, _ := d.reading.Get(device.FBTotal)
	capacity := math.Floor(mib/100) * 100
	if !r.snapshot.sharesOfKAI || r.snapshot.podsErr != nil || !d.fresh || capacity == 0 || d.device.Instance != nil || d.reading.MIG || !d.isPartitioningKnown() {
		return
	}
	if resource, ok := resourceOf(r.snapshot.pods, d.device); !ok || resource != kaiResource {
		return
	}
	fractions, ok := r.fractionsOn(d)
	if !ok {
		return
	}
	memory := amount{dimensionMemory, capacity * (1 << 20), 0, map[podName]float64{}}
	for h, f := range fractions {
		part := f.Memory
		if f.Ratio > 0 {
			part = math.Trunc(f.Ratio * capacity)
		}
		memory.add(podName{h.Namespace, h.Pod}, part*(1<<20))
	}
	r.addAmount(id, providerKAI, memory, podsWithSeries([]*deviceSnapshot{d}))
}

// fractionsOn returns the requests of the pods that share a device. ok is false if they are unknown,
// or if the device is or may be allocated in another way.
func (r *renderer) fractionsOn(d *deviceSnapshot) (fractions map[podmap.Holder]podmap.Fraction, ok bool) {
	isReserved := false
	for _, name := range d.device.Names() {
		if r.snapshot.pods.ReplicaCounts[name].Allocatable > 0 {
			return nil, false // another component shares the device
		}
		isReserved = isReserved || len(r.snapshot.pods.Reserved[name]) > 0
		if of := r.snapshot.pods.Fractions[name]; of != nil {
			fractions = of
		}
	}
	for _, h := range d.allHolders {
		if _, ok := fractions[h]; !ok {
			return nil, false
		}
	}
	if isReserved {
		return fractions, len(fractions) > 0
	}
	return nil, !d.allocated && !r.snapshot.mayBeAllocated(d.device, kaiResource)
}
