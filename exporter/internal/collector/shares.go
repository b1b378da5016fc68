package collector

import (
	"cmp"
	"maps"
	"slices"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Attribution is how what several pods use up of one device is divided between
// them. A device that a single pod holds is that pod's alone, whichever it is.
type Attribution string

// Attributions.
const (
	ByDevice Attribution = "device" // not at all: no pod has a part of it
	BySplit  Attribution = "split"  // evenly, by the replicas that each holds
	// ByProcess goes by what their processes use: memory as it is told, power and
	// energy by the time for which they keep the device busy.
	ByProcess Attribution = "process"
)

// pod that holds a device, in one container or several.
type pod struct{ namespace, name string }

func (p pod) compare(other pod) int {
	return cmp.Or(cmp.Compare(p.namespace, other.namespace), cmp.Compare(p.name, other.name))
}

// portions of what a device uses up, 0..1 of it. A pod has none that is not known.
type portions struct {
	memory map[pod]float64
	time   map[pod]float64 // of utilization, and by it of power and energy
}

func even(replicas map[pod]int) portions {
	all, out := 0, map[pod]float64{}
	for _, n := range replicas {
		all += n
	}
	for p, n := range replicas {
		out[p] = float64(n) / float64(all)
	}
	return portions{out, out}
}

// divide a device between the pods that hold so many replicas of it each, and whose
// processes use so much. All portions together are at most 1, whatever is held.
func divide(how Attribution, replicas map[pod]int, r device.Reading, used *usage) (Attribution, portions) {
	switch {
	case len(replicas) == 1:
		return ByDevice, even(replicas)
	case how == BySplit:
		return how, even(replicas)
	case how == ByProcess && used != nil:
		memory, _ := r.Get(device.FBUsed)
		busy, _ := r.Get(device.GPUUtil)
		return how, portions{within(used.memory, replicas, memory*(1<<20)), within(used.busy, replicas, busy)}
	}
	return how, portions{}
}

// within a whole, the portions that pods use of it. It and they are not told at the
// same time: where they come to more, they are portions of their sum. Pods that don't
// hold the device have none.
func within(used map[pod]float64, replicas map[pod]int, whole float64) map[pod]float64 {
	if used == nil {
		return nil
	}
	sum, out := 0.0, map[pod]float64{}
	for p := range replicas {
		sum += used[p]
	}
	for p := range replicas {
		out[p] = 0
		if whole = max(whole, sum); whole > 0 {
			out[p] = used[p] / whole
		}
	}
	return out
}

// usage of a device by the pods whose processes are on it.
type usage struct {
	memory, busy map[pod]float64 // bytes and %; nil where it is not told
	strangers    int             // processes that are in no pod of this node
}

// usedBy adds up the processes of each pod; nil where they are not told.
func (c *Collector) usedBy(processes *device.Processes) *usage {
	if processes == nil || c.cfg.PodOf == nil {
		return nil
	}
	u := &usage{memory: map[pod]float64{}}
	if processes.Busy != nil {
		u.busy = map[pod]float64{}
	}
	for pid, bytes := range processes.Memory {
		namespace, name, ok := c.cfg.PodOf(pid)
		if !ok {
			u.strangers++
			continue
		}
		u.memory[pod{namespace, name}] += bytes
		if u.busy != nil {
			u.busy[pod{namespace, name}] += processes.Busy[pid]
		}
	}
	return u
}

// claims of the pods on a device or GPU instance: the replicas that they hold of
// it, 1 where it has none.
func claims(pods podmap.Map, parts []*known) map[pod]int {
	n := map[pod]int{}
	for _, part := range parts {
		for _, name := range part.device.Names() {
			for _, h := range pods.Holders[name] {
				n[pod{h.Namespace, h.Pod}] += max(1, len(pods.Replicas[name][h]))
			}
		}
	}
	return n
}

// account is a pod's on a device, by how it was attributed.
type account struct {
	pod
	how Attribution
}

// shares are what pods use up of a device.
type shares struct {
	how      Attribution
	portions portions
	joules   map[account]float64 // since each pod was first seen to hold it
	mj       float64             // of the device when it last told
	told     bool
}

// follow who holds the device, and account for the energy since the last reading.
// While nobody knows who holds it, energy goes by that belongs to nobody.
func (s *shares) follow(how Attribution, replicas map[pod]int, known bool, r device.Reading, used *usage) {
	if s.joules == nil {
		s.joules = map[account]float64{}
	}
	if known {
		maps.DeleteFunc(s.joules, func(a account, _ float64) bool { return replicas[a.pod] == 0 })
	}
	s.how, s.portions = divide(how, replicas, r, used)
	for p := range s.portions.time {
		s.joules[account{p, s.how}] += 0
	}
	now, tells := r.Get(device.TotalEnergy)
	if !tells {
		return
	}
	if took := now - s.mj; s.told && took > 0 { // the count starts anew when the driver does
		for p, part := range s.portions.time {
			s.joules[account{p, s.how}] += part * took / 1000
		}
	}
	s.mj, s.told = now, true
}

// renderShares writes what each pod uses up of a device, in base units.
func (c *Collector) renderShares(p page, k *known, pods podmap.Map, podErr error) {
	parts, first := sameGI(k)
	if !first {
		return
	}
	k.shares.follow(c.cfg.Attribution, claims(pods, parts), podErr == nil, k.reading, k.used)
	id := func(a account) []string {
		return append(c.id(k), a.namespace, a.name, string(a.how))
	}
	for _, of := range []struct {
		own      own
		field    device.Field
		scale    float64
		portions map[pod]float64
	}{
		{podMemory, device.FBUsed, 1 << 20, k.shares.portions.memory},
		{podUtilization, device.GPUUtil, 0.01, k.shares.portions.time},
		{podPower, device.PowerUsage, 1, k.shares.portions.time},
	} {
		v, tells := k.reading.Get(of.field)
		if !tells || !k.fresh {
			continue
		}
		for _, holder := range slices.SortedFunc(maps.Keys(of.portions), pod.compare) {
			p.own(of.own, v*of.scale*of.portions[holder], id(account{holder, k.shares.how})...)
		}
	}
	if k.used != nil && k.fresh {
		p.own(strayProcesses, float64(k.used.strangers), c.id(k)...)
	}
	if _, tells := k.reading.Get(device.TotalEnergy); !tells {
		return
	}
	for _, a := range slices.SortedFunc(maps.Keys(k.shares.joules), func(a, b account) int {
		return cmp.Or(a.compare(b.pod), cmp.Compare(a.how, b.how))
	}) {
		p.own(podEnergy, k.shares.joules[a], id(a)...)
	}
}
