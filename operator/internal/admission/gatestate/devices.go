package gatestate

import (
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// FlavorDevices names the devices for which a ClusterQueue has quota in one flavor.
type FlavorDevices struct{ ClusterQueue, Flavor, Resource string }

// Devices is a number of devices on the clusters of a gate, free or not.
type Devices struct {
	Count int64
	// Complete is false if there may be more: on clusters without samples, or of other models.
	Complete bool
}

// SetDevices records the devices that a decision measured for each pod set of a job. A number that may lack clusters
// does not replace one that lacks none. Parts of devices do not count, because quota counts them otherwise.
func (r *Registry) SetDevices(gateName string, facts shape.Facts, clusters []gate.Candidate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.gates[gateName]
	if !ok {
		return
	}
	for i, p := range facts.PodSets {
		model, devices := p.Model, devicesOf(clusters, i)
		if slices.ContainsFunc(g.Spec.ModelFrom, func(key string) bool { return p.FlavorLabels[key] != "" }) {
			model = "" // all devices of the flavor are of this model
		}
		// Pods may name any model. One that no cluster has must not take memory.
		if p.Share != nil || p.Flavor == "" || model != "" && devices.Count == 0 {
			continue
		}
		r.setDevices(gateName, FlavorDevices{facts.ClusterQueue, p.Flavor, p.Resource}, model, devices)
	}
}

func (r *Registry) setDevices(gateName string, of FlavorDevices, model string, n Devices) {
	if r.devices[gateName] == nil {
		r.devices[gateName] = map[FlavorDevices]map[string]Devices{}
	}
	byModel := r.devices[gateName][of]
	if byModel == nil {
		byModel = map[string]Devices{}
		r.devices[gateName][of] = byModel
	}
	if n.Complete || !byModel[model].Complete {
		byModel[model] = n
	}
}

// devicesOf sums up the devices for a pod set. A cluster with samples and without a number has no such devices.
func devicesOf(clusters []gate.Candidate, podSet int) Devices {
	n := Devices{Complete: len(clusters) > 0}
	for _, c := range clusters {
		known := podSet < len(c.Shapes) && c.Shapes[podSet].Capacity.Known
		if known {
			n.Count += int64(c.Shapes[podSet].Capacity.Value)
		}
		n.Complete = n.Complete && (known || !c.SampledAt.IsZero())
	}
	return n
}

// DevicesOf returns the devices of a flavor by the latest decisions of the gate. It returns false if none measured
// them.
func (r *Registry) DevicesOf(gateName string, of FlavorDevices) (Devices, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byModel := r.devices[gateName][of]
	if all, ok := byModel[""]; ok {
		return all, true
	}
	var sum Devices
	for _, n := range byModel {
		sum.Count += n.Count
	}
	return sum, len(byModel) > 0
}
