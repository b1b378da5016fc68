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
)

// pod that holds a device, in one container or several.
type pod struct{ namespace, name string }

func (p pod) compare(other pod) int {
	return cmp.Or(cmp.Compare(p.namespace, other.namespace), cmp.Compare(p.name, other.name))
}

// portion of what a device uses up, 0..1 each.
type portion struct {
	memory float64
	time   float64 // of utilisation, and by it of power and energy
}

// divide a device between the pods that hold so many replicas of it each. All
// portions together are at most 1, whatever is held.
func divide(how Attribution, replicas map[pod]int) (Attribution, map[pod]portion) {
	out := map[pod]portion{}
	all := 0
	for p, n := range replicas {
		out[p] = portion{1, 1}
		all += n
	}
	if len(out) == 1 {
		return ByDevice, out
	}
	for p, n := range replicas {
		out[p] = portion{float64(n) / float64(all), float64(n) / float64(all)}
	}
	if how == ByDevice {
		clear(out)
	}
	return how, out
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
	portions map[pod]portion
	joules   map[account]float64 // since each pod was first seen to hold it
	mj       float64             // of the device when it last told
	told     bool
}

// follow who holds the device, and account for the energy since the last reading.
// While nobody knows who holds it, energy goes by that belongs to nobody.
func (s *shares) follow(how Attribution, replicas map[pod]int, known bool, r device.Reading) {
	if s.joules == nil {
		s.joules = map[account]float64{}
	}
	if known {
		maps.DeleteFunc(s.joules, func(a account, _ float64) bool { return replicas[a.pod] == 0 })
	}
	s.how, s.portions = divide(how, replicas)
	for p := range s.portions {
		s.joules[account{p, s.how}] += 0
	}
	now, tells := r.Get(device.TotalEnergy)
	if !tells {
		return
	}
	if took := now - s.mj; s.told && took > 0 { // the count starts anew when the driver does
		for p, part := range s.portions {
			s.joules[account{p, s.how}] += part.time * took / 1000
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
	k.shares.follow(c.cfg.Attribution, claims(pods, parts), podErr == nil, k.reading)
	id := func(a account) []string {
		return append(c.id(k), a.namespace, a.name, string(a.how))
	}
	for _, holder := range slices.SortedFunc(maps.Keys(k.shares.portions), pod.compare) {
		part, labels := k.shares.portions[holder], id(account{holder, k.shares.how})
		for _, of := range []struct {
			own   own
			field device.Field
			scale float64
		}{
			{podMemory, device.FBUsed, part.memory * (1 << 20)},
			{podUtilisation, device.GPUUtil, part.time / 100},
			{podPower, device.PowerUsage, part.time},
		} {
			if v, ok := k.reading.Get(of.field); ok && k.fresh {
				p.own(of.own, v*of.scale, labels...)
			}
		}
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
