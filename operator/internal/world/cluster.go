package world

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// node is a machine of a cluster.
type node struct {
	name     string
	pool     *Pool
	ready    bool
	unusable int64 // devices that no pod can use, such as one with a critical XID
	pods     []*pod
}

// pod of a job on a worker.
type pod struct {
	name    string
	job     *remoteJob
	node    *node
	created time.Time
	// devices, cpu and memory are what the scheduler counts for the pod.
	devices, cpu, memory int64
	ready                bool
	ended                bool // holds its devices only until it is gone
	deleting             bool
	onEnd                func() // called when the pod has ended; nil = nothing
}

// effectiveCPU is what kube-scheduler counts: the larger of the containers' and the init
// container's requests.
func effectiveCPU(j *Job) int64 { return max(j.CPU, j.InitCPU) }

func (n *node) used() (devices, cpu, memory int64) {
	for _, p := range n.pods {
		devices += p.devices
		cpu += p.cpu
		memory += p.memory
	}
	return devices, cpu, memory
}

// fits reports whether the scheduler would place a pod of the job on the node.
func (n *node) fits(j *Job) bool {
	if !n.ready || n.pool.Taint != "" && n.pool.Taint != j.Tolerates || j.Model != "" && j.Model != n.pool.Model || j.Resource != n.pool.Resource {
		return false
	}
	devices, cpu, memory := n.used()
	return devices+j.Devices <= n.pool.Devices-n.unusable &&
		(n.pool.CPU == 0 || cpu+effectiveCPU(j) <= n.pool.CPU) &&
		(n.pool.Memory == 0 || memory+j.Memory <= n.pool.Memory)
}

// free are the devices that no pod holds and that can be used.
func (n *node) free() int64 {
	devices, _, _ := n.used()
	return max(0, n.pool.Devices-n.unusable-devices)
}

// cluster is a worker: its nodes, its scheduler, its Kueue and the jobs on it.
type cluster struct {
	world *World
	spec  *Cluster
	kueue *kueueControl
	nodes []*node
	added map[*Pool]int
	jobs  map[string]*remoteJob // by namespace/name of the job
	pods  []*pod
	// reachable: MultiKueue and OCM reach the API server.
	reachable bool
	foundAt   time.Time // since when it is reachable again
	scrapedAt time.Time // last scrape of its exporters
	// metricsFoundAt is since when its metrics are complete again.
	metricsFoundAt time.Time
	// objects that prerequisites of gates name.
	objects []metrics.Object
	// dead parts of the worker.
	schedulerDead, startsFail bool
	scheduling                bool
}

func newCluster(w *World, spec *Cluster) *cluster {
	c := &cluster{world: w, spec: spec, added: map[*Pool]int{}, jobs: map[string]*remoteJob{}, reachable: true}
	for i := range spec.Pools {
		for range spec.Pools[i].Nodes {
			c.addNode(&spec.Pools[i])
		}
	}
	return c
}

func (c *cluster) addNode(p *Pool) {
	c.added[p]++
	c.nodes = append(c.nodes, &node{name: fmt.Sprintf("%s-%s-%d", c.spec.Name, flavorOf(p.Model), len(c.nodes)), pool: p, ready: true})
}

// devices are the devices of the nodes by model.
func (c *cluster) devices() map[string]int64 {
	sum := map[string]int64{}
	for _, n := range c.nodes {
		sum[n.pool.Model] += n.pool.Devices
	}
	return sum
}

// schedulePods looks at the pods without a node soon.
func (c *cluster) schedulePods() {
	if c.scheduling {
		return
	}
	c.scheduling = true
	c.world.loop.After(c.world.dice.between(30*time.Millisecond, 300*time.Millisecond, "scheduler "+c.spec.Name), func() {
		c.scheduling = false
		c.runScheduler()
	})
}

func (c *cluster) runScheduler() {
	if c.schedulerDead {
		return
	}
	inQuota := int64(0)
	for _, p := range c.pods {
		if p.node != nil {
			inQuota += p.devices
		}
	}
	waiting := slices.DeleteFunc(slices.Clone(c.pods), func(p *pod) bool { return p.node != nil || p.deleting })
	slices.SortStableFunc(waiting, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(b.job.spec.Priority, a.job.spec.Priority), a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	for _, p := range waiting {
		if c.spec.ResourceQuota > 0 && inQuota+p.devices > c.spec.ResourceQuota {
			continue
		}
		n := c.nodeFor(p.job.spec)
		if n == nil {
			c.growFor(p.job.spec)
			continue
		}
		p.node = n
		n.pods = append(n.pods, p)
		inQuota += p.devices
		c.world.loop.After(c.world.dice.between(time.Second, 4*time.Second, "start "+p.name), func() { c.startPod(p) })
	}
}

func (c *cluster) nodeFor(j *Job) *node {
	var best *node
	for _, n := range c.nodes {
		if !n.fits(j) {
			continue
		}
		if best == nil || c.spec.Spread && n.free() > best.free() || !c.spec.Spread && n.free() < best.free() {
			best = n
		}
	}
	return best
}

// growFor adds a node for a pod without one, as a cluster autoscaler does.
func (c *cluster) growFor(j *Job) {
	for i := range c.spec.Pools {
		p := &c.spec.Pools[i]
		empty := &node{pool: p, ready: true}
		if c.added[p] >= p.Max || !empty.fits(j) || c.growing(p) {
			continue
		}
		c.added[p]++
		n := &node{name: fmt.Sprintf("%s-%s-%d", c.spec.Name, flavorOf(p.Model), len(c.nodes)), pool: p}
		c.nodes = append(c.nodes, n)
		c.world.note("%s: node %s is on its way", c.spec.Name, n.name)
		c.world.loop.After(p.StartTime, func() { n.ready = true; c.schedulePods() })
		return
	}
}

func (c *cluster) growing(p *Pool) bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool { return n.pool == p && !n.ready && len(n.pods) == 0 })
}

func (c *cluster) startPod(p *pod) {
	if p.deleting || p.ended {
		return
	}
	if c.startsFail || p.job.spec.Behavior == Crashes || p.job.spec.Behavior == NeverReady {
		return // holds its devices, is not ready
	}
	p.ready = true
	p.job.podsChanged()
}

// deletePod ends a pod after its grace period.
func (c *cluster) deletePod(p *pod) {
	if p.deleting {
		return
	}
	p.deleting, p.ready = true, false
	if p.node == nil {
		c.removePod(p)
		return
	}
	grace := c.world.dice.between(200*time.Millisecond, 3*time.Second, "stop "+p.name)
	c.world.loop.After(max(grace, p.job.spec.Grace), func() { c.removePod(p) })
}

func (c *cluster) removePod(p *pod) {
	c.pods = slices.DeleteFunc(c.pods, func(other *pod) bool { return other == p })
	if p.node != nil {
		p.node.pods = slices.DeleteFunc(p.node.pods, func(other *pod) bool { return other == p })
	}
	if p.onEnd != nil {
		p.onEnd()
	}
	c.schedulePods()
}
