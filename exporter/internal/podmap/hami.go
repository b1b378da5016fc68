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
// The numbers are the memory in MiB and the percentage of the cores.
func ParseHAMi(text string) ([]Assignment, error) {
	var assigned []Assignment
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == ';' }) {
		field := strings.Split(part, ",")
		if len(field) < 4 {
			return nil, fmt.Errorf("%s: %q must have four fields", HAMiAnnotation, part)
		}
		mib, err := strconv.ParseUint(field[2], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: memory: %w", HAMiAnnotation, err)
		}
		percent, err := strconv.ParseUint(field[3], 10, 7)
		if err != nil {
			return nil, fmt.Errorf("%s: cores: %w", HAMiAnnotation, err)
		}
		assigned = append(assigned, Assignment{field[0], float64(mib << 20), float64(percent) / 100})
	}
	return assigned, nil
}

// hamiHolding is a container that holds replicas of HAMi's device plugin.
type hamiHolding struct {
	Holder
	devices, replicas []string // of each replica, in parallel
	assigned          []Assignment
}

// ApplyHAMi returns a map in which the containers hold the devices that HAMi assigned.
// HAMi's device plugin gives a container the devices in the pod's annotation, whichever
// replicas the kubelet allocated. assignments returns those of a pod. The holders stay as
// the kubelet reports them if the pod has none, if several containers of the pod hold
// devices, or if the numbers of devices differ.
func (m Map) ApplyHAMi(assignments func(namespace, pod string) []Assignment) Map {
	var changed []hamiHolding
	for _, h := range m.hamiHoldings() {
		if assigned := assignments(h.Namespace, h.Pod); m.offers(assigned) && len(assigned) == len(h.devices) {
			h.assigned = assigned // the annotation may change while this runs
			changed = append(changed, h)
		}
	}
	if len(changed) == 0 {
		return m
	}
	m.Holders, m.Allocated, m.ReplicaCounts, m.Replicas = maps.Clone(m.Holders), maps.Clone(m.Allocated), maps.Clone(m.ReplicaCounts), cloneReplicas(m.Replicas)
	for _, h := range changed {
		for _, name := range h.devices {
			m.release(name, h.Holder)
		}
	}
	for _, h := range changed {
		for i, a := range h.assigned {
			m.allocate(deviceID{name: a.Device, replica: h.replicas[i], provider: ProviderHAMi}, m.Allocatable[a.Device], h.Holder)
		}
	}
	return m
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

// offers reports whether HAMi offers every assigned device.
func (m Map) offers(assigned []Assignment) bool {
	return !slices.ContainsFunc(assigned, func(a Assignment) bool { return m.ReplicaCounts[a.Device].Provider != ProviderHAMi })
}

// release takes one replica of a device from a container.
func (m Map) release(name string, h Holder) {
	n := m.ReplicaCounts[name]
	n.Allocated--
	m.ReplicaCounts[name] = n
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
