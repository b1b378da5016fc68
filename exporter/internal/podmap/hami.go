package podmap

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// HAMiAnnotation is the annotation of a pod with the devices that HAMi's scheduler assigned.
const HAMiAnnotation = "hami.io/vgpu-devices-allocated"

// Assignment is the part of a device that a scheduler assigned to a container.
type Assignment struct {
	Device string  // UUID
	Memory float64 // bytes
	Cores  float64 // 0..1 of the device; 0 if the container has no limit
}

// ParseHAMi parses HAMiAnnotation. Devices end with a colon and containers with a semicolon:
//
//	GPU-<uuid>,NVIDIA,3000,30:;
//
// The numbers are the memory in MiB and the percentage of the cores. A container without a
// device can have an entry with an empty device, which is left out.
func ParseHAMi(text string) ([]Assignment, error) {
	var assigned []Assignment
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == ';' }) {
		field := strings.Split(part, ",")
		if len(field) < 4 {
			return nil, fmt.Errorf("%s: %q must have four fields", HAMiAnnotation, part)
		}
		if field[0] == "" {
			continue
		}
		mib, err := strconv.ParseUint(field[2], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: memory: %w", HAMiAnnotation, err)
		}
		percent, err := strconv.ParseUint(field[3], 10, 7)
		if err != nil {
			return nil, fmt.Errorf("%s: cores: %w", HAMiAnnotation, err)
		}
		if percent > 100 {
			return nil, fmt.Errorf("%s: cores: %d%% is more than a device has", HAMiAnnotation, percent)
		}
		assigned = append(assigned, Assignment{field[0], float64(mib << 20), float64(percent) / 100})
	}
	return assigned, nil
}

// Accepted are the assignments of a container that do not contradict the kubelet.
type Accepted struct {
	PodUID  string
	Devices []Assignment
}

// hamiHolding is a container that holds replicas of HAMi's device plugin.
type hamiHolding struct {
	Holder
	devices, replicas []string // of each replica, in parallel
	accepted          Accepted
	isNew             bool // the annotation was not accepted before
}

// ApplyHAMi returns a map in which the containers hold the devices that HAMi assigned.
// HAMi's device plugin gives a container the devices in the pod's annotation, whichever
// replicas the kubelet allocated. podOf returns the metadata of a pod, and before is
// Map.Assigned of the last call.
//
// A user who may change a pod can write its annotation, so it can only say on which of HAMi's
// devices the replicas are that the kubelet allocated to the pod. A container keeps the devices
// that the kubelet reports if
//   - the pod has no annotation, or several of its containers hold devices,
//   - the annotation has another number of devices than the kubelet, or a device twice,
//   - HAMi's plugin does not offer a device under the same resource,
//   - a device would have more replicas allocated than HAMi's plugin offers.
//
// The devices of a container do not change while its pod exists: the first annotation counts.
func (m Map) ApplyHAMi(podOf func(namespace, pod string) (Meta, bool), before map[Holder]Accepted) Map {
	var moved []hamiHolding
	for _, h := range m.hamiHoldings() {
		meta, known := podOf(h.Namespace, h.Pod) // only once: the annotation may change while this runs
		earlier, ok := before[h.Holder]
		switch {
		case ok && (!known || earlier.PodUID == meta.UID) && len(earlier.Devices) == len(h.devices):
			h.accepted = earlier
		case m.isPlausible(h, meta.HAMi):
			h.accepted, h.isNew = Accepted{meta.UID, meta.HAMi}, true
		default:
			continue
		}
		moved = append(moved, h)
	}
	moved = m.withoutOverfull(moved)
	if len(moved) == 0 {
		return m
	}
	m.Holders, m.ReplicaCounts, m.Replicas = maps.Clone(m.Holders), maps.Clone(m.ReplicaCounts), cloneReplicas(m.Replicas)
	m.Assigned = map[Holder]Accepted{}
	resources := m.Allocated
	m.Allocated = maps.Clone(resources)
	for name, n := range m.allocatedAfter(moved) {
		count := m.ReplicaCounts[name]
		count.Allocated = n
		m.ReplicaCounts[name] = count
	}
	for _, h := range moved {
		m.Assigned[h.Holder] = h.accepted
		for _, name := range h.devices {
			m.release(name, h.Holder)
		}
	}
	for _, h := range moved {
		for i, a := range h.accepted.Devices {
			m.addHolder(deviceID{name: a.Device, replica: h.replicas[i], provider: ProviderHAMi}, resources[h.devices[0]], h.Holder)
		}
	}
	return m
}

// IsHAMiKnown reports whether the devices of all containers are known that hold replicas of HAMi's
// plugin. HAMi may have given a container without an accepted annotation any of its devices.
func (m Map) IsHAMiKnown() bool {
	for name, holders := range m.Replicas {
		for h := range holders {
			if _, ok := m.Assigned[h]; !ok && m.ReplicaCounts[name].Provider == ProviderHAMi {
				return false
			}
		}
	}
	return true
}

// isPlausible reports whether a container can hold the devices of an annotation.
func (m Map) isPlausible(h hamiHolding, assigned []Assignment) bool {
	names := map[string]bool{}
	for _, a := range assigned {
		if m.ReplicaCounts[a.Device].Provider != ProviderHAMi || m.Allocatable[a.Device] != m.Allocated[h.devices[0]] {
			return false
		}
		names[a.Device] = true
	}
	return len(names) == len(assigned) && len(names) == len(h.devices)
}

// withoutOverfull leaves out new assignments to devices that would have more replicas allocated
// than offered: at least one of their annotations is wrong.
func (m Map) withoutOverfull(holdings []hamiHolding) []hamiHolding {
	for {
		allocated := m.allocatedAfter(holdings)
		n := len(holdings)
		holdings = slices.DeleteFunc(holdings, func(h hamiHolding) bool {
			return h.isNew && slices.ContainsFunc(h.accepted.Devices, func(a Assignment) bool {
				return allocated[a.Device] > m.ReplicaCounts[a.Device].Allocatable && !slices.Contains(h.devices, a.Device)
			})
		})
		if len(holdings) == n {
			return holdings
		}
	}
}

// allocatedAfter returns how many replicas of each device are allocated once the containers
// hold the devices of their annotations. While a pod replaces another one, the kubelet can
// report a replica for both. It counts once on each device that one of them holds.
func (m Map) allocatedAfter(holdings []hamiHolding) map[string]int {
	allocated, isMoved := map[string]int{}, map[Holder]bool{}
	for name, n := range m.ReplicaCounts {
		allocated[name] = n.Allocated
	}
	for _, h := range holdings {
		isMoved[h.Holder] = true
	}
	counted, released := replicaSet{}, replicaSet{} // counted has the replicas of the kubelet that are on a device
	replicaOn := func(device, name, replica string) deviceID {
		return deviceID{name: device, replica: name + " " + replica}
	}
	for name, holders := range m.Replicas {
		if m.ReplicaCounts[name].Provider != ProviderHAMi {
			continue // it stays where it is
		}
		for h, replicas := range holders {
			for _, replica := range replicas {
				if !isMoved[h] {
					counted.add(replicaOn(name, name, replica))
				} else if released.add(replicaOn(name, name, replica)) {
					allocated[name]--
				}
			}
		}
	}
	for id := range released {
		if counted[id] { // another container still holds it there
			allocated[id[0]]++
		}
	}
	for _, h := range holdings {
		for i, name := range h.devices {
			if device := h.accepted.Devices[i].Device; counted.add(replicaOn(device, name, h.replicas[i])) {
				allocated[device]++
			}
		}
	}
	return allocated
}

// hamiHoldings returns the containers that hold replicas of HAMi, without those of pods with
// several such containers.
func (m Map) hamiHoldings() []hamiHolding {
	byPod := map[[2]string]map[Holder]*hamiHolding{}
	for _, name := range slices.Sorted(maps.Keys(m.Replicas)) {
		if m.ReplicaCounts[name].Provider != ProviderHAMi {
			continue
		}
		for h, replicas := range m.Replicas[name] {
			pod := [2]string{h.Namespace, h.Pod}
			if byPod[pod] == nil {
				byPod[pod] = map[Holder]*hamiHolding{}
			}
			holding := byPod[pod][h]
			if holding == nil {
				holding = &hamiHolding{Holder: h}
				byPod[pod][h] = holding
			}
			for _, replica := range replicas {
				holding.devices, holding.replicas = append(holding.devices, name), append(holding.replicas, replica)
			}
		}
	}
	var holdings []hamiHolding
	for _, containers := range byPod {
		for _, h := range containers {
			if len(containers) == 1 {
				holdings = append(holdings, *h)
			}
		}
	}
	slices.SortFunc(holdings, func(a, b hamiHolding) int { return a.Compare(b.Holder) })
	return holdings
}

// release takes a device from a container.
func (m Map) release(name string, h Holder) {
	m.Holders[name] = slices.DeleteFunc(slices.Clone(m.Holders[name]), func(other Holder) bool { return other == h })
	delete(m.Replicas[name], h)
	if len(m.Holders[name]) == 0 {
		delete(m.Allocated, name)
		delete(m.Holders, name)
	}
}

func cloneReplicas(all map[string]map[Holder][]string) map[string]map[Holder][]string {
	clone := map[string]map[Holder][]string{}
	for name, holders := range all {
		clone[name] = maps.Clone(holders)
	}
	return clone
}
