package podmap

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Annotations with which a pod requests a part of a device from KAI Scheduler.
const (
	kaiFraction  = "gpu-fraction"                // of the memory of a device, such as 0.5
	kaiMemory    = "gpu-memory"                  // MiB
	kaiContainer = "gpu-fraction-container-name" // the container that uses the device
)

// kaiGroup is the label with the group of a shared device, on the pod that reserves the device and on
// the pods that share it. A pod with several devices has a label kaiGroup/GROUP for each.
const kaiGroup = "runai-gpu-group"

// IsKAIAnnotation reports whether an annotation belongs to a request for KAI Scheduler.
func IsKAIAnnotation(key string) bool {
	return key == kaiFraction || key == kaiMemory || key == kaiContainer
}

// IsKAILabel reports whether a label has a group of a shared device of KAI Scheduler.
func IsKAILabel(key string) bool { return key == kaiGroup || strings.HasPrefix(key, kaiGroup+"/") }

// Fraction is the part of each of its devices that a pod requests from KAI Scheduler. Either Ratio or
// Memory is set; both are 0 for a pod without a valid request, such as one that reserves a device.
type Fraction struct {
	Groups    []string // of the devices
	Ratio     float64  // of the memory of a device, above 0 and at most 1
	Memory    float64  // MiB
	Container string   // that uses the devices; empty for the first one
}

// ParseKAI returns the request of a pod. It has no group if the pod shares and reserves nothing. As
// for KAI Scheduler, an invalid annotation is no request, and a fraction counts before an amount of
// memory.
func ParseKAI(labels, annotations map[string]string) (f Fraction) {
	groups := map[string]bool{}
	for key, group := range labels {
		if IsKAILabel(key) && group != "" {
			groups[group] = true
		}
	}
	if len(groups) == 0 {
		return Fraction{}
	}
	f = Fraction{Groups: slices.Sorted(maps.Keys(groups)), Container: annotations[kaiContainer]}
	if ratio, err := strconv.ParseFloat(annotations[kaiFraction], 64); err == nil && ratio > 0 && ratio <= 1 {
		f.Ratio = ratio
	} else if mib, err := strconv.ParseInt(annotations[kaiMemory], 10, 64); err == nil && mib > 0 {
		f.Memory = float64(mib)
	}
	return f
}

// ApplyKAI returns a map in which the pods that share a device of KAI Scheduler hold it. The kubelet
// reports the pod that reserves the device; its label has the group of the pods that share it.
// fractionOf returns the request of a pod, which has no group if the pod shares nothing. known is false
// for a pod that the API server has not shown yet.
//
// Fractions has a reserved device only if its group is known, of no other device, and at least one
// pod with a request shares it: a pod may have been bound that the API server does not show yet. It
// is empty while the kubelet lists an unknown pod, which may share any reserved device.
func (m Map) ApplyKAI(fractionOf func(namespace, pod string) (f Fraction, known bool)) Map {
	if len(m.Reserved) == 0 {
		return m
	}
	devices := m.devicesOfGroups(fractionOf)
	m.Holders, m.Fractions = maps.Clone(m.Holders), map[string]map[Holder]Fraction{}
	pods := slices.SortedFunc(maps.Keys(m.Containers), func(a, b [2]string) int { return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1])) })
	allKnown := true
	for _, pod := range pods {
		f, known := fractionOf(pod[0], pod[1])
		allKnown = allKnown && known
		if !known || isReservation(pod[0]) || f.Ratio == 0 && f.Memory == 0 {
			continue
		}
		h := Holder{pod[0], pod[1], ""}
		if containers := m.Containers[pod]; slices.Contains(containers, f.Container) {
			h.Container = f.Container
		} else if len(containers) > 0 {
			h.Container = containers[0]
		}
		for _, group := range f.Groups {
			name := devices[group]
			if name == "" {
				continue
			}
			if m.Fractions[name] == nil {
				m.Fractions[name] = map[Holder]Fraction{}
			}
			m.Fractions[name][h] = f
			if !slices.Contains(m.Holders[name], h) {
				m.Holders[name] = append(slices.Clone(m.Holders[name]), h)
			}
		}
	}
	if !allKnown {
		m.Fractions = nil
	}
	return m
}

// devicesOfGroups returns the reserved device of each group that has only one.
func (m Map) devicesOfGroups(fractionOf func(namespace, pod string) (Fraction, bool)) map[string]string {
	devices, ambiguous := map[string]string{}, map[string]bool{}
	for name, holders := range m.Reserved {
		for _, h := range holders {
			f, _ := fractionOf(h.Namespace, h.Pod)
			for _, group := range f.Groups {
				ambiguous[group] = ambiguous[group] || devices[group] != "" && devices[group] != name
				devices[group] = name
			}
		}
	}
	maps.DeleteFunc(devices, func(group, _ string) bool { return ambiguous[group] })
	return devices
}
