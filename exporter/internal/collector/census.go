package collector

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Reasons of plimsoll_exporter_unmapped_devices.
const (
	kubeletUnreachable   = "kubelet_unreachable"
	kubeletDisabled      = "kubelet_disabled"
	allocatableUnknown   = "allocatable_unknown"
	notAllocatable       = "not_allocatable"
	allocatableNotListed = "allocatable_not_listed"
	allocatedNotListed   = "allocated_not_listed"
	unknownIDFormat      = "unknown_id_format"
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
	largestFree    map[deviceGroup]int // size of the largest group of free devices that NVLink connects
	hasNVLink      map[deviceGroup]bool
	freeMIG        map[migKind]float64
	mapped         float64
	notAllocatable float64 // devices that the kubelet does not allocate
}

func newCensus() *census {
	return &census{counts: map[deviceGroup]map[string]float64{}, free: map[deviceGroup][]device.Device{}, largestFree: map[deviceGroup]int{}, hasNVLink: map[deviceGroup]bool{}, freeMIG: map[migKind]float64{}}
}

// countDevice counts a device or MIG instance. A device in MIG mode is allocated only
// through its instances, so it is never free.
func (n *census) countDevice(d *deviceSnapshot, pods podmap.Map) {
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
	n.count(g, "allocated", d.allocated)
	n.count(g, "unhealthy", !d.isHealthy())
	n.count(g, "unknown", d.isHealthy() && !d.isPartitioningKnown())
	n.count(g, "allocatable", true)
	free := !d.allocated && d.isHealthy() && d.isPartitioningKnown() && !mig && !isReplicated(pods, d.device)
	if free {
		connected := d.device
		connected.Links = linkEnds(d.device, d.reading)
		n.free[g] = append(n.free[g], connected)
	}
	if d.device.Instance != nil && d.device.Vendor == device.NVIDIA {
		n.freeMIG[migKind{Model(d.device.Model), d.device.Instance.Profile}] += boolValue(free)
	}
	n.hasNVLink[g] = n.hasNVLink[g] || len(linkEnds(d.device, d.reading)) > 0
}

// count adds a device to the count of a state if it is in the state.
func (n *census) count(g deviceGroup, state string, isIn bool) {
	if n.counts[g] == nil {
		n.counts[g] = map[string]float64{"allocatable": 0, "allocated": 0, "free": 0, "unhealthy": 0, "unknown": 0}
	}
	n.counts[g][state] += boolValue(isIn)
}

// countUnresolved counts the allocatable ids that belong to no listed device, as unknown.
// An example is a device that fell off the bus before the exporter started.
func (n *census) countUnresolved(pods podmap.Map, listed map[string]bool) {
	models := n.modelByResource()
	for name, resource := range pods.Allocatable {
		if listed[name] {
			continue
		}
		g := deviceGroup{resource, cmp.Or(models[resource], unknownModel)}
		_, isAllocated := pods.Allocated[name]
		n.count(g, "allocated", isAllocated)
		n.count(g, "allocatable", true)
		n.count(g, "unknown", true)
	}
}

// lowerFree takes devices off the free ones for each allocated id that belongs to no listed
// device, and counts them as unknown: the id may be another name of one of them. An id
// that is allocatable itself is not the name of another allocatable device.
//
// An id that names a part of a listed device can only be that device or a part of it. Any
// other id can be a device of any model, so it takes one device off each model.
func (n *census) lowerFree(pods podmap.Map, listed map[string]bool) {
	for g, free := range n.free {
		n.largestFree[g] = largestGroup(free)
	}
	for _, id := range sortedKeys(pods.Allocated) {
		_, isAllocatable := pods.Allocatable[id]
		if listed[id] || isAllocatable {
			continue
		}
		for g, free := range n.free {
			i := slices.IndexFunc(free, func(d device.Device) bool { return mayBe(d, g.resource, pods, id, listed) })
			if i < 0 {
				continue
			}
			if instance := free[i].Instance; instance != nil && free[i].Vendor == device.NVIDIA {
				n.freeMIG[migKind{Model(free[i].Model), instance.Profile}]--
			}
			n.free[g] = slices.Delete(free, i, i+1)
			n.largestFree[g] = max(0, n.largestFree[g]-1) // it may be in the largest group
			n.count(g, "unknown", true)
		}
	}
}

// mayBe reports whether an allocated id may be another name of a device of a resource. An
// id of a device plugin can only be a device of the same resource.
func mayBe(d device.Device, resource string, pods podmap.Map, id string, listed map[string]bool) bool {
	part, requested := pods.Parts[id], pods.Allocated[id]
	switch {
	case requested != "" && requested != resource:
		return false
	case pods.Unprepared[id]: // a claim of any driver
		class, ok := deviceClassOf(pods, d)
		return ok && class == resource
	case !listed[part.Device]:
		return requested == resource || d.Vendor == vendorOfClaim(pods, id)
	case d.Instance == nil:
		return slices.Contains(d.Names(), part.Device)
	}
	isPartOf := d.Minor == part.Device || d.Instance.Parent == part.Device
	return isPartOf && (part.Profile == "" || part.Profile == claimedProfile(d.Instance.Profile))
}

// mayBeAllocated reports whether an allocated id that belongs to no listed device may be another name
// of a device of a resource.
func (s *snapshot) mayBeAllocated(d device.Device, resource string) bool {
	listed := namesOf(s.devices)
	for id := range s.pods.Allocated {
		if _, isAllocatable := s.pods.Allocatable[id]; !listed[id] && !isAllocatable && mayBe(d, resource, s.pods, id, listed) {
			return true
		}
	}
	return false
}

// claimedProfile returns a profile in the notation of resource claims: 1g10gb-me for
// 1g.10gb+me.
func claimedProfile(profile string) string {
	return strings.NewReplacer(".", "", "+", "-").Replace(profile)
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

// deviceClassOf returns the DeviceClass by which resource claims request an NVIDIA or AMD
// device. The kubelet reports the allocatable devices of device plugins but not of
// claims, so every device counts as allocatable if the node uses claims. A device that a
// device plugin withdrew, because it is unhealthy or the plugin restarts, is still one of the
// plugin.
func deviceClassOf(pods podmap.Map, d device.Device) (class string, ok bool) {
	driver := map[device.Vendor]string{device.NVIDIA: podmap.NVIDIADriver, device.AMD: podmap.AMDDriver}[d.Vendor]
	switch {
	case driver == "" || !pods.ClaimDrivers[driver] || pods.IsWithdrawn(d.Names()):
		return "", false
	case d.Vendor == device.NVIDIA && d.Instance != nil:
		return "mig.nvidia.com", true
	}
	return driver, true // the DeviceClass has the same name
}

// vendorOfClaim returns the vendor of the device that a claim allocated.
func vendorOfClaim(pods podmap.Map, id string) device.Vendor {
	for _, claim := range pods.Claimed[id] {
		switch claim.Driver {
		case podmap.GoogleDriver:
			return device.Google
		case podmap.AMDDriver:
			return device.AMD
		}
	}
	return device.NVIDIA
}

// isReplicated reports whether the device is allocated as replicas.
func isReplicated(pods podmap.Map, d device.Device) bool {
	return slices.ContainsFunc(d.Names(), func(name string) bool { return pods.Shared[name] })
}

// countUnlisted counts the ids that belong to no listed device, by reason. A running pod
// can hold such an id after MIG was reconfigured.
func countUnlisted(pods podmap.Map, listed map[string]bool) map[string]float64 {
	reasons := map[string]string{}
	for id := range pods.Allocatable {
		reasons[id] = allocatableNotListed
	}
	for id := range pods.Allocated {
		if !pods.Unprepared[id] { // it belongs to a device
			reasons[id] = allocatedNotListed
		}
	}
	for id := range pods.UnknownFormat {
		reasons[id] = unknownIDFormat
	}
	counts := map[string]float64{}
	for id, reason := range reasons {
		counts[reason] += boolValue(!listed[id])
	}
	return counts
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
		allocated := 0
		for _, d := range s.devices {
			if d.allocated {
				allocated++
			}
		}
		r.families.add(mappedDevices, float64(allocated), r.node)
		r.families.add(unmapped, float64(len(s.devices)-allocated), r.node, allocatableUnknown)
		return
	}
	n := newCensus()
	for _, d := range s.devices {
		n.countDevice(d, s.pods)
	}
	listed := namesOf(s.devices)
	n.countUnresolved(s.pods, listed)
	n.lowerFree(s.pods, listed)
	r.renderCensus(n)
	unmappedFor(notAllocatable, n.notAllocatable)
	unlisted := countUnlisted(s.pods, listed)
	for _, reason := range sortedKeys(unlisted) {
		unmappedFor(reason, unlisted[reason])
	}
}

func (r *renderer) renderCensus(n *census) {
	for g, states := range n.counts {
		states["free"] = float64(len(n.free[g]))
		for state, count := range states {
			r.families.add(nodeDevices, count, r.node, g.resource, g.model, state)
		}
		if n.hasNVLink[g] {
			r.families.add(largestFree, float64(n.largestFree[g]), r.node, g.resource, g.model)
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
