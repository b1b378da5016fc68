package waitqueue

import (
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// devices are the kinds of devices that a change concerns. The zero value concerns none.
type devices struct {
	// all is true if the change concerns every workload, also those without devices.
	all bool
	// kinds are pod sets, of which only resource and model count.
	kinds []shape.PodSet
}

// with adds the devices of pod sets; none stands for all.
func (d devices) with(podSets []shape.PodSet) devices {
	if len(podSets) == 0 {
		return devices{all: true}
	}
	for _, p := range podSets {
		isKnown := slices.ContainsFunc(d.kinds, func(k shape.PodSet) bool { return k.Resource == p.Resource && k.Model == p.Model })
		if !isKnown {
			d.kinds = append(slices.Clone(d.kinds), shape.PodSet{Resource: p.Resource, Model: p.Model})
		}
	}
	return d
}

// and adds other devices.
func (d devices) and(other devices) devices {
	if d.all || other.all {
		return devices{all: true}
	}
	if other.isEmpty() {
		return d
	}
	return d.with(other.kinds)
}

func (d devices) isEmpty() bool { return !d.all && len(d.kinds) == 0 }

// concern reports whether the workloads of a line might use the devices.
func (d devices) concern(l *line) bool { return d.all || l.competesWith(d.kinds) }
