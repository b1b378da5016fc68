package rebalance

import (
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
)

// Node identifies the devices of one model on one node.
type Node struct{ Cluster, Name, Model string }

// Devices are the devices of nodes as measured.
type Devices struct {
	// Free is the number of devices that are free for placement, by resource. A node without a
	// value is not known.
	Free map[string]map[Node]int64
	// Allocated is the number of devices that the pods of an owner hold on healthy nodes which accept
	// pods.
	Allocated map[reclaim.Owner]map[Node]int64
}

// areAllKnown reports whether exactly the devices that the workload holds are measured, each on a node
// whose free devices are known.
func (d *Devices) areAllKnown(c *reclaim.Candidate) bool {
	var n int64
	for node, held := range d.Allocated[c.Owner] {
		if _, ok := d.Free[c.Resource][node]; !ok {
			return false
		}
		n += held
	}
	return n == c.Devices
}

// podsWithout returns how many pods of a shape could start on the cluster of c if c were gone, and how
// many more these are than now. As the gate's default fit query, it is the sum over nodes of
// floor(free devices / devices per pod).
func (d *Devices) podsWithout(c *reclaim.Candidate, p shape.PodSet) (pods, more int64) {
	returned := d.Allocated[c.Owner]
	if c.Resource != p.Resource {
		returned = nil
	}
	for node, free := range d.Free[p.Resource] {
		if node.Cluster != c.Owner.Cluster || p.Model != "" && p.Model != node.Model {
			continue
		}
		after := (free + returned[node]) / p.DevicesPerPod
		pods += after
		more += after - free/p.DevicesPerPod
	}
	return pods, more
}
