package collector

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Attribution is how the usage of a device was attributed to a pod.
type Attribution string

// Attributions. BySplit and ByProcess are the methods for devices with several pods.
const (
	ByDevice Attribution = "device" // a single pod holds the device
	BySplit  Attribution = "split"  // evenly by the number of replicas
	// ByProcess attributes memory by the memory of the pod's processes, and power and
	// energy by the time in which they keep the device busy.
	ByProcess Attribution = "process"
)

// portions are the parts of a device's usage by pod, each 0..1. Together they are at
// most 1. A pod whose part is unknown has no entry.
type portions struct {
	memory map[podName]float64
	time   map[podName]float64 // of utilization, power and energy
}

// account identifies an energy counter: a pod, and the method that attributed the energy.
type account struct {
	podName
	method Attribution
}

func (a account) compare(other account) int {
	return cmp.Or(a.podName.compare(other.podName), cmp.Compare(a.method, other.method))
}

// podUsage is the attributed usage of one device. It never changes.
type podUsage struct {
	method       Attribution
	portions     portions
	joules       map[account]float64 // since the exporter first saw the pod hold the device
	unattributed *int                // processes without a pod; nil if processes are not attributed
	byProcess    portions            // by the processes of each pod, whatever the method; empty if processes are not attributed
}

// podAttribution integrates the energy of a device by pod.
type podAttribution struct {
	joules map[account]float64

	// State at the last reading of the device's energy counter.
	lastMillijoule float64
	lastReading    time.Time
	started        bool             // lastMillijoule is set
	holders        map[podName]bool // pods that held the device; empty if they were unknown
}

// update attributes the energy since the last update and returns the current usage.
// replicas is the number of replicas that each pod holds. If holdersKnown is false, the
// energy since the last update is attributed to no pod, and no counter is removed. A pod that
// did not hold the device at the last reading has no part in the energy since then.
func (a *podAttribution) update(method Attribution, replicas map[podName]int, holdersKnown bool, r device.Reading, usage *processUsage) podUsage {
	if a.joules == nil {
		a.joules = map[account]float64{}
	}
	if holdersKnown {
		maps.DeleteFunc(a.joules, func(of account, _ float64) bool { return replicas[of.podName] == 0 })
	}
	out := podUsage{}
	if usage != nil {
		out.unattributed, out.byProcess = &usage.unattributed, divideByProcess(replicas, r, usage)
	}
	out.method, out.portions = divide(method, replicas, r, usage)
	for pod := range out.portions.time {
		a.joules[account{pod, out.method}] += 0 // a new pod starts at 0
	}
	if now, ok := r.Get(device.TotalEnergy); ok {
		a.addEnergy(now, r.Time, replicas, out)
	}
	out.joules = maps.Clone(a.joules)
	return out
}

// addEnergy attributes the energy since the last reading, in mJ. A reading that was already
// attributed has no effect: collections of other vendors repeat it.
func (a *podAttribution) addEnergy(now float64, at time.Time, replicas map[podName]int, usage podUsage) {
	if a.started && now == a.lastMillijoule && at.Equal(a.lastReading) {
		return
	}
	// The counter restarts at 0 when the driver is reloaded.
	if spent := now - a.lastMillijoule; a.started && spent > 0 {
		for pod, portion := range usage.portions.time {
			if a.holders[pod] {
				a.joules[account{pod, usage.method}] += portion * spent / 1000
			}
		}
	}
	a.lastMillijoule, a.lastReading, a.started, a.holders = now, at, true, map[podName]bool{}
	for pod := range replicas {
		a.holders[pod] = true
	}
}

// divide returns the portions of the pods and the method that determined them.
func divide(method Attribution, replicas map[podName]int, r device.Reading, usage *processUsage) (Attribution, portions) {
	switch {
	case len(replicas) == 1:
		return ByDevice, divideByReplicas(replicas)
	case method == BySplit:
		return method, divideByReplicas(replicas)
	case method == ByProcess && usage != nil:
		return method, divideByProcess(replicas, r, usage)
	}
	return method, portions{}
}

func divideByProcess(replicas map[podName]int, r device.Reading, usage *processUsage) portions {
	memory, _ := r.Get(device.FBUsed)
	busy, _ := r.Get(device.GPUUtil)
	return portions{memory: divideByUse(usage.memory, replicas, memory*(1<<20)), time: divideByUse(usage.busy, replicas, busy)}
}

func divideByReplicas(replicas map[podName]int) portions {
	total, out := 0, map[podName]float64{}
	for _, n := range replicas {
		total += n
	}
	for pod, n := range replicas {
		out[pod] = float64(n) / float64(total)
	}
	return portions{out, out}
}

// divideByUse returns the portion of whole that each pod uses. The driver measures the
// pods and the device at different times, so the pods may exceed the device. They are
// then portions of their sum. Pods that do not hold the device get no portion.
func divideByUse(used map[podName]float64, replicas map[podName]int, whole float64) map[podName]float64 {
	if used == nil {
		return nil
	}
	sum, out := 0.0, map[podName]float64{}
	for pod := range replicas {
		sum += used[pod]
	}
	whole = max(whole, sum)
	for pod := range replicas {
		out[pod] = 0
		if whole > 0 {
			out[pod] = used[pod] / whole
		}
	}
	return out
}

// processUsage is the usage of a device by processes, summed by pod.
type processUsage struct {
	memory, busy map[podName]float64 // bytes and percent; busy is nil if unknown
	unattributed int                 // processes that belong to no pod of the node
}

// usageByPod sums the usage of the processes of each pod. The result is nil if the
// device does not report processes.
func (c *Collector) usageByPod(processes *device.Processes) *processUsage {
	if processes == nil || c.cfg.PodOf == nil {
		return nil
	}
	u := &processUsage{memory: map[podName]float64{}}
	if processes.Busy != nil {
		u.busy = map[podName]float64{}
	}
	for pid, bytes := range processes.Memory {
		namespace, name, ok := c.cfg.PodOf(pid)
		if !ok {
			u.unattributed++
			continue
		}
		u.memory[podName{namespace, name}] += bytes
		if u.busy != nil {
			u.busy[podName{namespace, name}] += processes.Busy[pid]
		}
	}
	return u
}

// replicasByPod counts the replicas of a device or GPU instance that each pod holds. A
// device without replicas counts as one.
func replicasByPod(pods podmap.Map, parts []*deviceSnapshot) map[podName]int {
	n := map[podName]int{}
	for _, part := range parts {
		for _, name := range part.device.Names() {
			for _, h := range pods.Holders[name] {
				n[podName{h.Namespace, h.Pod}] += max(1, len(pods.Replicas[name][h]))
			}
		}
	}
	return n
}

// renderPodUsage writes the attributed usage of a device in base units.
func (r *renderer) renderPodUsage(d *deviceSnapshot) {
	parts, isFirst := d.gpuInstance()
	if !isFirst {
		return
	}
	withSeries := podsWithSeries(parts)
	labels := func(a account) []string {
		return append(r.deviceLabelValues(d), a.namespace, a.name, string(a.method))
	}
	for _, row := range []struct {
		metric   metric
		field    device.Field
		scale    float64
		portions map[podName]float64
	}{
		{podMemory, device.FBUsed, 1 << 20, d.usage.portions.memory},
		{podUtilization, device.GPUUtil, 0.01, d.usage.portions.time},
		{podPower, device.PowerUsage, 1, d.usage.portions.time},
	} {
		v, ok := d.reading.Get(row.field)
		if !ok || !d.fresh {
			continue
		}
		for _, pod := range slices.SortedFunc(maps.Keys(row.portions), podName.compare) {
			if withSeries != nil && !withSeries[pod] {
				continue
			}
			r.families.add(row.metric, v*row.scale*row.portions[pod], labels(account{pod, d.usage.method})...)
		}
	}
	if d.usage.unattributed != nil && d.fresh {
		r.families.add(unattributedProcesses, float64(*d.usage.unattributed), r.deviceLabelValues(d)...)
	}
	if _, ok := d.reading.Get(device.TotalEnergy); !ok {
		return
	}
	for _, a := range slices.SortedFunc(maps.Keys(d.usage.joules), account.compare) {
		if withSeries != nil && !withSeries[a.podName] {
			continue
		}
		r.families.add(podEnergy, d.usage.joules[a], labels(a)...)
	}
}
