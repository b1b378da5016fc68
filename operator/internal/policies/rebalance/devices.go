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
	// Unrequested is what pods may still request of each node, by the name of the resource. A node without a value is
	// not limited.
	Unrequested map[string]map[Node]int64
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
// the pods that fit by devices, CPU and memory.
func (d *Devices) podsWithout(c *reclaim.Candidate, p shape.PodSet) (pods, more int64) {
	returned := d.Allocated[c.Owner]
	if c.Resource != p.Resource {
		returned = nil
	}
	for node, free := range d.Free[p.Resource] {
		if node.Cluster != c.Owner.Cluster || p.Model != "" && p.Model != node.Model {
			continue
		}
		now := d.podsOn(node, p, free, 0, shape.Requests{})
		after := d.podsOn(node, p, free, returned[node], c.Requests)
		pods, more = pods+after, more+after-now
	}
	return pods, more
}

// podsOn returns how many pods of a shape fit on a node with so many free devices, and more that are returned with
// requests of their pods.
func (d *Devices) podsOn(node Node, p shape.PodSet, free, returned int64, each shape.Requests) int64 {
	pods := (free + returned) / p.DevicesPerPod
	for _, row := range []struct {
		resource     string
		perPod, each int64
	}{{ResourceCPU, p.Requests.MilliCPU, each.MilliCPU}, {ResourceMemory, p.Requests.Memory, each.Memory}} {
		left, isKnown := d.Unrequested[row.resource][Node{Cluster: node.Cluster, Name: node.Name}]
		if isKnown && row.perPod > 0 {
			pods = min(pods, (left+returned*row.each)/row.perPod)
		}
	}
	return pods
}
