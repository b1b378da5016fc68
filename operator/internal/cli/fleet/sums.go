package fleet

import (
	"maps"
	"slices"
)

// Number is a number of devices, or UnknownCount.
type Number int

// String formats the number like Count.
func (n Number) String() string { return Count(int(n)) }

// Sum has the devices of one resource in all clusters. They are unknown if no cluster with the resource is counted.
type Sum struct {
	Resource    string
	Free, Total Number
	// Without are the clusters that are not counted, because their devices are unknown.
	Without []string
}

// Sums returns the sum of each resource, by name. It is empty if no cluster reports devices.
func Sums(clusters []Cluster) (sums []Sum) {
	resources := map[string]bool{}
	for _, c := range clusters {
		for _, d := range c.Devices {
			resources[d.Resource] = true
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(resources)) {
		sum, isKnown := Sum{Resource: resource}, false
		for _, c := range clusters {
			isKnown = sum.add(c) || isKnown
		}
		if !isKnown {
			sum.Free, sum.Total = UnknownCount, UnknownCount
		}
		sums = append(sums, sum)
	}
	return sums
}

// add counts the devices of a cluster, and returns whether it has some. A cluster without devices of the resource counts
// 0 if it reports others.
func (s *Sum) add(c Cluster) (hasSome bool) {
	free, total, isKnown := 0, 0, len(c.Devices) > 0
	for _, d := range c.Devices {
		if d.Resource == s.Resource {
			hasSome, isKnown = true, isKnown && d.Free != UnknownCount && d.Total != UnknownCount
			free, total = free+d.Free, total+d.Total
		}
	}
	if !isKnown {
		s.Without = append(s.Without, c.Cluster)
		return false
	}
	s.Free, s.Total = s.Free+Number(free), s.Total+Number(total)
	return hasSome
}
