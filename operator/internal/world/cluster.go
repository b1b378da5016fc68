package world

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// node is a machine of a cluster.
type node struct {
	name     string
	pool     *Pool
	ready    bool
	unusable int64 // devices that no pod can use, such as one with a critical XID
	pods     []*pod
	// devices, cpu and memory are the sums over the pods.
	devices, cpu, memory int64
}

// pod of a job on a worker.
type pod struct {
	name    string
	job     *remoteJob
	node    *node
	created time.Time
	boundAt time.Time
	// serial is the number of the pod on its cluster, at its position in a podList.
	serial, at int
	// devices, cpu and memory are what the scheduler counts for the pod.
	devices, cpu, memory int64
	ready                bool
	ended                bool // holds its devices only until it is gone
	deleting             bool
	onEnd                func() // called when the pod has ended; nil = nothing
}

// effectiveCPU is what kube-scheduler counts: the larger of the containers' and the init
// container's requests, and those of the sidecar.
func effectiveCPU(j *Job) int64 { return max(j.CPU, j.InitCPU) + j.SidecarCPU }

// add gives a pod the node.
func (n *node) add(p *pod) {
	p.node = n
	n.pods = append(n.pods, p)
	n.devices, n.cpu, n.memory = n.devices+p.devices, n.cpu+p.cpu, n.memory+p.memory
}

// remove takes a pod from the node.
func (n *node) remove(p *pod) {
	n.pods = slices.DeleteFunc(n.pods, func(other *pod) bool { return other == p })
	n.devices, n.cpu, n.memory = n.devices-p.devices, n.cpu-p.cpu, n.memory-p.memory
}

// fits reports whether the scheduler would place a pod of the job on the node.
func (n *node) fits(j *Job) bool { return n.placeable(j, 1) > 0 }

// placeable is the number of pods of the job that the scheduler would place on the node, up to a limit.
func (n *node) placeable(j *Job, limit int64) int64 {
	if !n.ready || n.pool.Taint != "" && n.pool.Taint != j.Tolerates || j.Model != "" && j.Model != n.pool.Model || j.Resource != n.pool.Resource {
		return 0
	}
	limit = min(limit, (n.pool.Devices-n.unusable-n.devices)/j.Devices)
	if n.pool.CPU > 0 {
		limit = atMost(limit, n.pool.CPU-n.cpu, effectiveCPU(j))
	}
	if n.pool.Memory > 0 {
		limit = atMost(limit, n.pool.Memory-n.memory, j.Memory)
	}
	return max(0, limit)
}

// atMost is the number of pods, up to a limit, that take each the same part of what is left.
func atMost(limit, left, each int64) int64 {
	switch {
	case left < 0:
		return 0
	case each == 0:
		return limit
	default:
		return min(limit, left/each)
	}
}

// free are the devices that no pod holds and that can be used.
func (n *node) free() int64 {
	return max(0, n.pool.Devices-n.unusable-n.devices)
}

// cluster is a worker: its nodes, its scheduler, its Kueue and the jobs on it.
type cluster struct {
	world *World
	spec  *Cluster
	kueue *kueueControl
	nodes []*node
	added map[*Pool]int
	jobs  map[types.NamespacedName]*remoteJob // by the first Workload of the job
	// bound are the pods with a node, waiting those without one, each in the order of their creation. bound pods
	// request devices.
	bound, waiting podList
	devicesBound   int64
	pods           int // that were created
	// reachable: MultiKueue and OCM reach the API server.
	reachable bool
	foundAt   time.Time // since when it is reachable again
	scrapedAt time.Time // last scrape of its exporters
	shown     bool      // by which: any pod
	// metricsFoundAt is since when its metrics are complete again.
	metricsFoundAt time.Time
	// emptied is the cluster without pods; nil = not needed yet.
	emptied *cluster
	// objects that prerequisites of gates name.
	objects []metrics.Object
	// localQueues are those that kube-state-metrics reports.
	localQueues []metrics.Object
	// dead parts of the worker.
	schedulerDead, startsFail bool
	scheduling                bool
}

func newCluster(w *World, spec *Cluster) *cluster {
	c := &cluster{world: w, spec: spec, added: map[*Pool]int{}, jobs: map[types.NamespacedName]*remoteJob{}, reachable: true}
	for i := range spec.Pools {
		for range spec.Pools[i].Nodes {
			c.addNode(&spec.Pools[i])
		}
	}
	return c
}

func (c *cluster) addNode(p *Pool) {
	c.added[p]++
	c.nodes = append(c.nodes, &node{name: fmt.Sprintf("%s-%s-%d", c.spec.Name, FlavorOf(p.Model), len(c.nodes)), pool: p, ready: true})
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
	waiting := slices.Collect(c.waiting.all())
	slices.SortStableFunc(waiting, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(b.job.spec.Priority, a.job.spec.Priority), a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	for _, p := range waiting {
		if c.spec.ResourceQuota > 0 && c.devicesBound+p.devices > c.spec.ResourceQuota {
			continue
		}
		n := c.nodeFor(p.job)
		if n == nil {
			c.growFor(p.job)
			continue
		}
		c.bind(p, n)
		c.world.loop.After(p.job.spec.Pull+c.world.dice.between(time.Second, 4*time.Second, "start "+p.name), func() { c.startPod(p) })
	}
}

// createPod adds a pod without a node.
func (c *cluster) createPod(p *pod) {
	c.pods++
	p.serial = c.pods
	c.waiting.add(p)
}

// bind gives a waiting pod a node.
func (c *cluster) bind(p *pod, n *node) {
	c.waiting.remove(p)
	c.bound.add(p)
	c.devicesBound += p.devices
	p.boundAt = c.world.loop.Now()
	n.add(p)
}

func (c *cluster) nodeFor(j *remoteJob) *node {
	var best *node
	for _, n := range c.nodes {
		if !j.mayUse(n.pool) || !n.fits(j.spec) {
			continue
		}
		if best == nil || c.spec.Spread && n.free() > best.free() || !c.spec.Spread && n.free() < best.free() {
			best = n
		}
	}
	return best
}

// growFor adds a node for a pod without one, as a cluster autoscaler does.
func (c *cluster) growFor(j *remoteJob) {
	for i := range c.spec.Pools {
		p := &c.spec.Pools[i]
		empty := &node{pool: p, ready: true}
		if c.added[p] >= p.Max || !j.mayUse(p) || !empty.fits(j.spec) || c.growing(p) {
			continue
		}
		c.added[p]++
		n := &node{name: fmt.Sprintf("%s-%s-%d", c.spec.Name, FlavorOf(p.Model), len(c.nodes)), pool: p}
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
	if p.node == nil {
		c.waiting.remove(p)
	} else if c.bound.remove(p) { // else it was lost with its node
		c.devicesBound -= p.devices
		p.node.remove(p)
	}
	if p.onEnd != nil {
		p.onEnd()
	}
	c.schedulePods()
}
