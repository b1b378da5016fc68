package world

import (
	"maps"
	"math/rand/v2"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// A job may require that all its pods are in one domain of a topology, such as a rack. The nodes of a domain have the
// same value of the level's label. On a worker, Kueue's topology-aware scheduling assigns a domain with the quota.

// BlockLevel is the level of a topology, a node label, for which there is a recording rule.
const BlockLevel = "cloud.google.com/gce-topology-block"

// TopologyQueries are those of config/samples/gates/topology.yaml.
func TopologyQueries() v1alpha1.GateQueries {
	inOneDomain := func(devices string) string {
		return `max by (cluster) (
  sum by (cluster, domain) (
    sum by (cluster, node) (floor(` + devices + `{resource="$resource",model="$model"} / $devices_per_pod))
      * on (cluster, node) group_left (domain)
    node:plimsoll_topology:info{level="$required_topology"}
  )
)
`
	}
	return v1alpha1.GateQueries{Fit: inOneDomain("node_resource_model:plimsoll_free_devices:placeable"), EmptyFit: inOneDomain("node_resource_model:plimsoll_devices:placeable")}
}

// placeableByDomain is the number of pods of a job that the scheduler could place in each domain, up to a limit.
func (c *cluster) placeableByDomain(j *Job, limit int64) map[string]int64 {
	rooms := map[string]int64{}
	for _, n := range c.nodes {
		if domain := n.pool.Labels[j.Topology]; domain != "" {
			rooms[domain] += n.placeable(j, limit-rooms[domain])
		}
	}
	return rooms
}

// placeableInDomain is the number of pods of a job that the scheduler could place in the best domain, up to a limit.
func (c *cluster) placeableInDomain(j *Job, limit int64) (most int64) {
	for _, room := range c.placeableByDomain(j, limit) {
		most = max(most, room)
	}
	return most
}

// requireDomain adds the required level of a job to the pods of its Workload.
func (j *Job) requireDomain(set *kueue.PodSet) {
	if j.Topology != "" {
		set.TopologyRequest = &kueue.PodSetTopologyRequest{Required: &j.Topology}
	}
}

// assignDomain assigns the domain with the least room that suffices to a Workload that requires one. It reports
// false if there is none. Kueue counts the pods on nodes, and those of other assignments that have no node yet.
func (c *cluster) assignDomain(key types.NamespacedName, assignments []kueue.PodSetAssignment) bool {
	j := c.world.runs[key].Job
	if j.Topology == "" {
		return true
	}
	a := &assignments[0]
	rooms := c.placeableByDomain(j, 1<<32)
	for domain, devices := range c.awaited() {
		rooms[domain] -= (devices + j.Devices - 1) / j.Devices
	}
	best := ""
	for _, domain := range slices.Sorted(maps.Keys(rooms)) {
		if rooms[domain] >= int64(*a.Count) && (best == "" || rooms[domain] < rooms[best]) {
			best = domain
		}
	}
	if best == "" {
		return false
	}
	a.TopologyAssignment = &kueue.TopologyAssignment{Levels: []string{j.Topology}, Slices: []kueue.TopologyAssignmentSlice{
		{DomainCount: 1, ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Universal: &best}}, PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: a.Count}}}}
	return true
}

// awaited are the devices of assigned pods without a node, by domain.
func (c *cluster) awaited() map[string]int64 {
	devices := map[string]int64{}
	for _, key := range c.kueue.workloads.keys() {
		wl := c.kueue.workloads.get(key)
		domain := domainOf(wl)
		if domain == "" || kueuestate.IsFinished(wl) {
			continue
		}
		pods := int64(*wl.Status.Admission.PodSetAssignments[0].Count)
		if j := c.jobFor(key); j != nil {
			for _, p := range j.pods {
				if p.node != nil {
					pods--
				}
			}
		}
		devices[domain] += pods * c.world.runs[key].Devices
	}
	return devices
}

// domainOf is the domain that Kueue assigned to a Workload; empty = any.
func domainOf(wl *kueue.Workload) string {
	if wl.Status.Admission == nil || wl.Status.Admission.PodSetAssignments[0].TopologyAssignment == nil {
		return ""
	}
	return *wl.Status.Admission.PodSetAssignments[0].TopologyAssignment.Slices[0].ValuesPerLevel[0].Universal
}

// mayUse reports whether the nodes of a pool are in the domain of a job.
func (r *remoteJob) mayUse(p *Pool) bool {
	return r.domain == "" || p.Labels[r.spec.Topology] == r.domain
}

// makeTopology divides the clusters of some worlds into blocks, with jobs that require one.
func makeTopology(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x746f706f))} // of its own, so that the rest of a seed's world stays the same
	if !g.chance(.1) {
		return
	}
	s.Settings.Gate.Queries = TopologyQueries()
	for i := range s.Clusters {
		s.Clusters[i].Pools = g.blocks(s.Clusters[i].Pools)
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Kind != KindJob && j.Kind != "" || j.Elastic || j.MinPods > 0 || !g.chance(.5) {
			continue
		}
		j.Topology = BlockLevel
		if j.Pods == 1 {
			j.Pods = int64(1 + g.IntN(4))
		}
		fit(s, j)
	}
}

// blocks are the pools of a cluster, each divided into two blocks. The queries count only devices, so the pods' CPU and
// memory find room on each node. No pool grows: a block is not known before its nodes.
func (g generator) blocks(pools []Pool) (divided []Pool) {
	for _, p := range pools {
		p.CPU, p.Memory, p.Max, p.StartTime = 0, 0, 0, 0
		first := (p.Nodes + g.IntN(2)) / 2
		for i, nodes := range []int{first, p.Nodes - first} {
			if nodes > 0 {
				p.Nodes, p.Labels = nodes, map[string]string{BlockLevel: []string{"a", "b"}[i]}
				divided = append(divided, p)
			}
		}
	}
	return divided
}
