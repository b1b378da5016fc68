package collector

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Reasons of plimsoll_exporter_unmapped_devices. podmap.UnknownIDFormat is another one.
const (
	kubeletUnreachable   = "kubelet_unreachable"
	kubeletDisabled      = "kubelet_disabled"
	allocatableUnknown   = "allocatable_unknown"
	notAllocatable       = "not_allocatable"
	allocatableNotListed = "allocatable_not_listed"
	allocatedNotListed   = "allocated_not_listed"
)

// deviceGroup identifies the devices that a pod can request interchangeably.
type deviceGroup struct{ resource, model string }

// migKind identifies MIG instances of the same profile on the same model of device.
type migKind struct{ model, profile string }

// unknownModel is the model of a device that only the kubelet lists, if the other
// devices of its resource are of several models.
const unknownModel = "unknown"

// census counts the node's devices.
type census struct {
	counts         map[deviceGroup]map[string]float64 // by state
	free           map[deviceGroup][]device.Device
	hasNVLink      map[deviceGroup]bool
	freeMIG        map[migKind]float64
	mapped         float64
	notAllocatable float64 // devices that the kubelet does not allocate
}

func newCensus() *census {
	return &census{counts: map[deviceGroup]map[string]float64{}, free: map[deviceGroup][]device.Device{}, hasNVLink: map[deviceGroup]bool{}, freeMIG: map[migKind]float64{}}
}

// countDevice counts a device or MIG instance. A device in MIG mode is allocated only
// through its instances, so it is never free.
func (n *census) countDevice(d *deviceSnapshot, pods podmap.Map, isHeld bool) {
	mig := d.reading.MIG
	resource, ok := resourceOf(pods, d.device)
	if !ok && !mig {
		resource, ok = deviceClassOf(pods, d.device)
	}
	if !ok {
		n.notAllocatable += boolValue(!mig)
		return
	}
	n.mapped++
	g := deviceGroup{resource, modelLabel(d.device)}
	n.addToGroup(g, isHeld, d.isHealthy())
	free := !isHeld && d.isHealthy() && !mig && !isReplicated(pods, d.device)
	if free {
		n.counts[g]["free"]++
		n.free[g] = append(n.free[g], d.device)
	}
	if d.device.Instance != nil {
		n.freeMIG[migKind{Model(d.device.Model), d.device.Instance.Profile}] += boolValue(free)
	}
	n.hasNVLink[g] = n.hasNVLink[g] || len(d.device.Links) > 0
}

func (n *census) addToGroup(g deviceGroup, isHeld, isHealthy bool) {
	if n.counts[g] == nil {
		n.counts[g] = map[string]float64{"allocatable": 0, "allocated": 0, "free": 0, "unhealthy": 0}
	}
	n.counts[g]["allocatable"]++
	n.counts[g]["allocated"] += boolValue(isHeld)
	n.counts[g]["unhealthy"] += boolValue(!isHealthy)
}

// countUnlisted counts devices that are allocatable but that no source lists, as
// unhealthy. An example is a device that fell off the bus before the exporter started.
// It returns how many of them have no holder.
func (n *census) countUnlisted(pods podmap.Map, listed map[string]bool) (unheld float64) {
	models := n.modelByResource()
	for name, resource := range pods.Allocatable {
		if listed[name] {
			continue
		}
		isHeld := len(pods.Holders[name]) > 0
		n.addToGroup(deviceGroup{resource, cmp.Or(models[resource], unknownModel)}, isHeld, false)
		unheld += boolValue(!isHeld)
	}
	return unheld
}

// modelByResource returns the model of each resource, or unknownModel for a resource
// with several.
func (n *census) modelByResource() map[string]string {
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

// resourceOf returns the resource name of a device that a device plugin allocates.
func resourceOf(pods podmap.Map, d device.Device) (string, bool) {
	for _, name := range d.Names() {
		if resource, ok := pods.Allocatable[name]; ok {
			return resource, true
		}
	}
	return "", false
}

// deviceClassOf returns the DeviceClass by which resource claims request an NVIDIA
// device. The kubelet reports the allocatable devices of device plugins but not of
// claims, so every device counts as allocatable if the node uses claims.
func deviceClassOf(pods podmap.Map, d device.Device) (class string, ok bool) {
	switch {
	case !pods.UsesClaims || !strings.HasPrefix(d.Minor, "nvidia"):
		return "", false
	case d.Instance != nil:
		return "mig.nvidia.com", true
	}
	return "gpu.nvidia.com", true
}

// isReplicated reports whether the device is allocated as replicas.
func isReplicated(pods podmap.Map, d device.Device) bool {
	return slices.ContainsFunc(d.Names(), func(name string) bool { return pods.Shared[name] })
}

// countHeldUnlisted counts device ids that have holders but belong to no listed device.
// A running pod can hold such an id after MIG was reconfigured.
func countHeldUnlisted(pods podmap.Map, listed map[string]bool) (n float64) {
	for name := range pods.Holders {
		n += boolValue(!listed[name])
	}
	return n
}

// namesOf returns every name of every device.
func namesOf(devices []*deviceSnapshot) map[string]bool {
	names := map[string]bool{}
	for _, d := range devices {
		for _, name := range d.device.Names() {
			names[name] = true
		}
	}
	return names
}

// renderNode writes the number of devices by resource, model and state. Without the
// kubelet no device is known to be free, so the counts are absent.
func (r *renderer) renderNode() {
	s := r.snapshot
	unmappedFor := func(reason string, n float64) {
		if n > 0 {
			r.families.add(unmapped, n, r.node, reason)
		}
	}
	if s.podsErr != nil {
		reason := kubeletUnreachable
		if errors.Is(s.podsErr, podmap.ErrDisabled) {
			reason = kubeletDisabled
		}
		r.families.add(mappedDevices, 0, r.node)
		r.families.add(unmapped, float64(len(s.devices)), r.node, reason)
		return
	}
	if s.pods.AllocatableErr != nil {
		held := 0
		for _, d := range s.devices {
			if len(d.holders) > 0 {
				held++
			}
		}
		r.families.add(mappedDevices, float64(held), r.node)
		r.families.add(unmapped, float64(len(s.devices)-held), r.node, allocatableUnknown)
		return
	}
	n := newCensus()
	for _, d := range s.devices {
		n.countDevice(d, s.pods, len(d.holders) > 0)
	}
	listed := namesOf(s.devices)
	unlisted := n.countUnlisted(s.pods, listed)
	r.renderCensus(n)
	unmappedFor(notAllocatable, n.notAllocatable)
	unmappedFor(allocatableNotListed, unlisted)
	unmappedFor(allocatedNotListed, countHeldUnlisted(s.pods, listed))
	for _, reason := range sortedKeys(s.pods.Unmapped) {
		unmappedFor(reason, float64(s.pods.Unmapped[reason]))
	}
}

func (r *renderer) renderCensus(n *census) {
	for g, states := range n.counts {
		for state, count := range states {
			r.families.add(nodeDevices, count, r.node, g.resource, g.model, state)
		}
		if n.hasNVLink[g] {
			r.families.add(largestFree, float64(largestGroup(n.free[g])), r.node, g.resource, g.model)
		}
	}
	for kind, count := range n.freeMIG {
		r.families.add(freeMIGInstances, count, r.node, kind.model, kind.profile)
	}
	for _, name := range []string{nodeDevices.name, largestFree.name, freeMIGInstances.name} {
		if f := r.families[name]; f != nil {
			slices.SortFunc(f.series, func(a, b series) int { return strings.Compare(string(a.labels), string(b.labels)) })
		}
	}
	r.families.add(mappedDevices, n.mapped, r.node)
}
