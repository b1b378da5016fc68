package collector

import (
	"cmp"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// group of devices that a pod may ask for alike.
type group struct{ resource, model string }

// slice is a kind of MIG instance: the device it is cut off, and its profile.
type slice struct{ model, profile string }

// census of the node's devices.
type census struct {
	counts map[group]map[string]float64 // by state
	free   map[group][]device.Device
	linked map[group]bool // some device has NVLink
	slices map[slice]float64
	mapped float64
	absent float64 // the kubelet does not hand them out
}

func newCensus() *census {
	return &census{counts: map[group]map[string]float64{}, free: map[group][]device.Device{}, linked: map[group]bool{}, slices: map[slice]float64{}}
}

// count one device or instance. A device in MIG mode is handed out in instances,
// and never whole.
func (n *census) count(k *known, pods podmap.Map, held bool) {
	d, mig := k.device, k.reading.MIG
	resource, ok := resourceOf(pods, d)
	if !ok && !mig {
		resource, ok = claimable(pods, d)
	}
	if !ok {
		n.absent += flag(!mig)
		return
	}
	n.mapped++
	g := group{resource, modelOf(d)}
	n.add(g, held, k.healthy())
	free := !held && k.healthy() && !mig && !replicated(pods, d)
	if free {
		n.counts[g]["free"]++
		n.free[g] = append(n.free[g], d)
	}
	if d.Instance != nil {
		n.slices[slice{Model(d.Model), d.Instance.Profile}] += flag(free)
	}
	n.linked[g] = n.linked[g] || len(d.Links) > 0
}

func (n *census) add(g group, held, healthy bool) {
	if n.counts[g] == nil {
		n.counts[g] = map[string]float64{"allocatable": 0, "allocated": 0, "free": 0, "unhealthy": 0}
	}
	n.counts[g]["allocatable"]++
	n.counts[g]["allocated"] += flag(held)
	n.counts[g]["unhealthy"] += flag(!healthy)
}

// miss counts as unhealthy the devices that the kubelet would hand out and nobody
// lists, as one that fell off the bus before the exporter started; it returns how
// many of them nobody holds.
func (n *census) miss(pods podmap.Map, devices []device.Device) (free float64) {
	models := n.models()
	there := namesOf(devices)
	for name, resource := range pods.Allocatable {
		if there[name] {
			continue
		}
		held := len(pods.Holders[name]) > 0
		n.add(group{resource, cmp.Or(models[resource], unknownModel)}, held, false)
		free += flag(!held)
	}
	return free
}

// unknownModel is that of a device of which only the kubelet tells, where the others
// of its resource have no model in common.
const unknownModel = "unknown"

// models by resource, of those that have but one.
func (n *census) models() map[string]string {
	models := map[string]string{}
	for g := range n.counts {
		if other, ok := models[g.resource]; ok && other != g.model {
			models[g.resource] = unknownModel
			continue
		}
		models[g.resource] = g.model
	}
	return models
}

func resourceOf(pods podmap.Map, d device.Device) (string, bool) {
	for _, name := range d.Names() {
		if resource, ok := pods.Allocatable[name]; ok {
			return resource, true
		}
	}
	return "", false
}

// claimable is the device class by whose name claims ask for the device, where claims
// are how devices are handed out: the kubelet tells what a device plugin may hand out,
// and nothing of that kind for claims.
func claimable(pods podmap.Map, d device.Device) (class string, ok bool) {
	switch {
	case !pods.Claims || !strings.HasPrefix(d.Minor, "nvidia"):
		return "", false
	case d.Instance != nil:
		return "mig.nvidia.com", true
	}
	return "gpu.nvidia.com", true
}

// replicated devices are handed out several times over.
func replicated(pods podmap.Map, d device.Device) bool {
	return slices.ContainsFunc(d.Names(), func(name string) bool { return pods.Shared[name] })
}

// holders by UUID: the containers that hold each device, by whatever name.
func holders(pods podmap.Map, devices []device.Device) map[string][]podmap.Holder {
	held := map[string][]podmap.Holder{}
	for _, d := range devices {
		for _, name := range d.Names() {
			for _, h := range pods.Holders[name] {
				if !slices.Contains(held[d.UUID], h) {
					held[d.UUID] = append(held[d.UUID], h)
				}
			}
		}
	}
	return held
}

// strangers are held, and none of the devices: what a reconfiguration took away
// from a pod that still runs.
func strangers(pods podmap.Map, devices []device.Device) float64 {
	there := namesOf(devices)
	n := 0.0
	for name := range pods.Holders {
		n += flag(!there[name])
	}
	return n
}

func namesOf(devices []device.Device) map[string]bool {
	names := map[string]bool{}
	for _, d := range devices {
		for _, name := range d.Names() {
			names[name] = true
		}
	}
	return names
}
