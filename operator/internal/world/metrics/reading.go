package metrics

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/timestamp"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// NodeGroup is a number of ready nodes that do not differ in what the default queries of gates read of them.
type NodeGroup struct {
	Nodes                         int64
	Resource, Model, Taint        string
	Devices, Allocated, Unhealthy int64
	// CPU in milli-cores and Memory in MiB of each node, and what pods request of it. 0 means without limit.
	CPU, CPUUsed, Memory, MemoryUsed int64
	// Claimed devices are free ones that the exporter reports, and that do not exist.
	Claimed int64
}

// IsLike reports whether the nodes of both groups do not differ.
func (g *NodeGroup) IsLike(other *NodeGroup) bool {
	same := *other
	same.Nodes = g.Nodes
	return *g == same
}

// isPlaceable reports whether the rules count the nodes for placement.
func (g *NodeGroup) isPlaceable() bool {
	return g.Taint == "" || slices.Contains(toleratedTaints, g.Taint)
}

// free are the devices that are free for placement on each node.
func (g *NodeGroup) free() int64 {
	if !g.isPlaceable() {
		return 0
	}
	return max(0, min(g.Devices+g.Claimed-g.Unhealthy-g.Allocated, g.Devices-g.Unhealthy))
}

// isTolerated reports whether kube-scheduler places the pods on nodes with a taint.
func isTolerated(p *shape.PodSet, taint string) bool {
	tolerates := func(t shape.Toleration) bool { return t.AnyValue && (t.Key == "" || t.Key == taint) }
	return taint == "" || slices.Contains(deviceTaints, taint) || slices.ContainsFunc(p.Tolerations, tolerates)
}

// podsByRequests is how many pods fit on each node by CPU and memory. It returns false if nothing limits them.
func (g *NodeGroup) podsByRequests(p *shape.PodSet, cpuUsed, memoryUsed int64) (int64, bool) {
	pods := int64(math.MaxInt64)
	if g.CPU > 0 && p.Requests.MilliCPU > 0 {
		pods = max(0, g.CPU-cpuUsed) / p.Requests.MilliCPU
	}
	if g.Memory > 0 && p.Requests.Memory > 0 {
		pods = min(pods, max(0, g.Memory-memoryUsed)<<20/p.Requests.Memory)
	}
	return pods, pods < math.MaxInt64
}

// Summary is what one scrape shows of a cluster to the default queries of gates. It is small, also for a cluster
// with many nodes.
type Summary struct {
	At     time.Time
	Groups []NodeGroup
	Queues []Queue
	// LocalQueues are those that kube-state-metrics reports.
	LocalQueues []Object
	// NodesFailed and KueueFailed are true if the targets did not respond.
	NodesFailed, KueueFailed bool
}

// Readings are the results of a gate's default queries, calculated from summaries without series, rules or a
// query language. They are those that the package querycache has with a Store in the mode ClosedForm.
type Readings struct {
	scraped  map[string]*Summary
	recorded map[string]*reading
}

// reading is what the rules recorded of a cluster.
type reading struct {
	sampledAt, quotaSampledAt time.Time
	groups                    []NodeGroup
	// isTrusted: the samples are young enough for placement.
	isTrusted bool
	quotas    []quota
}

// NewReadings returns readings without a cluster.
func NewReadings() *Readings {
	return &Readings{scraped: map[string]*Summary{}, recorded: map[string]*reading{}}
}

// Scrape stores the summary of a cluster until the next one.
func (r *Readings) Scrape(cluster string, s *Summary) { r.scraped[cluster] = s }

// Evaluate records what the rules record at a time.
func (r *Readings) Evaluate(at time.Time) {
	for cluster, s := range r.scraped {
		r.recorded[cluster] = s.evaluate(timestamp.FromTime(at))
	}
}

func (s *Summary) evaluate(at int64) *reading {
	scrapedAt, recorded := timestamp.FromTime(s.At), &reading{}
	if at-scrapedAt >= lookback {
		return recorded
	}
	if !s.KueueFailed {
		recorded.quotas = kueueDataOf(&Snapshot{Queues: s.Queues}).quotas
		if len(recorded.quotas) > 0 {
			recorded.quotaSampledAt = sampleTime(scrapedAt)
		}
	}
	if !s.NodesFailed && len(s.Groups) > 0 {
		recorded.groups, recorded.isTrusted = s.Groups, seconds(scrapedAt) > seconds(at)-trustedAge
		if recorded.isTrusted {
			recorded.sampledAt = sampleTime(scrapedAt)
		}
	}
	return recorded
}

// sampleTime is the time that a gate reads in a value in seconds.
func sampleTime(at int64) time.Time { return time.UnixMilli(int64(seconds(at) * 1000)) }

// Candidates are the gate's clusters with what its default queries say of them now.
func (r *Readings) Candidates(g gatestate.Gate, f shape.Facts) []gate.Candidate {
	list := make([]gate.Candidate, len(g.Clusters))
	for i, of := range g.Clusters {
		list[i] = of.Candidate()
		list[i].Shapes = make([]gate.ShapeMetrics, len(f.PodSets))
		recorded := r.recorded[of.Name]
		if recorded == nil {
			recorded = &reading{}
		}
		list[i].SampledAt = recorded.sampledAt
		if f.Remote {
			list[i].LocalQueues = r.scraped[of.Name].localQueues()
			list[i].QuotaSampledAt = recorded.quotaSampledAt
		}
		list[i].Excess = recorded.excess()
		for k := range f.PodSets {
			list[i].Shapes[k] = recorded.shape(&f, &f.PodSets[k], list[i].ClusterQueue(ledger.QueueOf(&f)))
		}
	}
	return list
}

// excess is the largest number of devices that an exporter reports and kube-state-metrics does not.
func (r *reading) excess() (n gate.Number) {
	for i := range r.groups {
		n = gate.Known(max(n.Value, float64(r.groups[i].Claimed)))
	}
	return n
}

// shape has the results of the queries for one pod set.
func (r *reading) shape(f *shape.Facts, p *shape.PodSet, queue string) gate.ShapeMetrics {
	var m gate.ShapeMetrics
	m.Measured = map[string]bool{}
	for i := range r.groups {
		g := &r.groups[i]
		if g.isPlaceable() && g.CPU > 0 {
			m.Measured["cpu"] = true
		}
		if g.isPlaceable() && g.Memory > 0 {
			m.Measured["memory"] = true
		}
		if g.Resource != p.Resource || p.Model != "" && g.Model != p.Model {
			continue
		}
		add(&m.Capacity, g.Nodes*g.Devices)
		if !r.isTrusted {
			continue
		}
		free, devices := g.free(), int64(0)
		if g.isPlaceable() {
			devices = g.Devices
		}
		add(&m.Headroom, g.Nodes*free)
		m.Largest = gate.Known(math.Max(m.Largest.Value, float64(free)))
		m.LargestNode = gate.Known(math.Max(m.LargestNode.Value, float64(devices)))
		if p.DevicesPerPod > 0 {
			byDevices := free / p.DevicesPerPod
			byRequests, isLimited := g.podsByRequests(p, g.CPUUsed, g.MemoryUsed)
			empty, _ := g.podsByRequests(p, 0, 0)
			add(&m.DeviceFit, g.Nodes*byDevices)
			if !isTolerated(p, g.Taint) {
				m.Measured["taint "+g.Taint] = true
				add(&m.Fit, 0)
				add(&m.EmptyFit, 0)
				continue
			}
			if isLimited && byDevices >= 1 {
				add(&m.RequestFit, g.Nodes*byRequests)
			}
			add(&m.Fit, g.Nodes*min(byDevices, byRequests))
			add(&m.EmptyFit, g.Nodes*min(devices/p.DevicesPerPod, empty))
		}
	}
	if f.Remote {
		r.addQuota(&m, f, p, queue)
	}
	return m
}

// localQueues are the ClusterQueues of the LocalQueues, by namespace/name; nil = not reported.
func (s *Summary) localQueues() map[string]string {
	if s == nil || s.NodesFailed || len(s.LocalQueues) == 0 {
		return nil
	}
	queues := map[string]string{}
	for _, o := range s.LocalQueues {
		queues[o.Namespace+"/"+o.Name] = o.ClusterQueue
	}
	return queues
}

func add(n *gate.Number, v int64) { *n = gate.Known(n.Value + float64(v)) }

// addQuota adds what the worker's Kueue says of its queue. If the queue has a flavor with the hub flavor's name, only that
// counts.
func (r *reading) addQuota(m *gate.ShapeMetrics, f *shape.Facts, p *shape.PodSet, queue string) {
	var own, limit, nominal [2]gate.Number // of the flavor, of all flavors
	if f.Reclaims {
		m.Borrowed = map[string]gate.Number{}
	}
	isOfFlavor := func(q *quota) bool { return p.Flavor == "" || q.flavor == p.Flavor }
	hasFlavor := slices.ContainsFunc(r.quotas, func(q quota) bool { return q.inCohort && q.resource == p.Resource && isOfFlavor(&q) })
	for i := range r.quotas {
		q := &r.quotas[i]
		if q.resource != p.Resource {
			continue
		}
		if q.queue == queue {
			addQuota(&own, q.unreserved, isOfFlavor(q))
			addQuota(&limit, q.limit, isOfFlavor(q))
			if q.inCohort && f.Reclaims {
				addQuota(&nominal, q.nominalUnreserved, isOfFlavor(q))
			}
		}
		if f.Reclaims && q.inCohort && q.nominalUnreserved < 0 && isOfFlavor(q) == hasFlavor {
			m.Borrowed[q.queue] = gate.Known(m.Borrowed[q.queue].Value - q.nominalUnreserved)
		}
	}
	m.Quota, m.QuotaLimit, m.NominalQuota = prefer(own), prefer(limit), prefer(nominal)
	m.CPUQuota = r.quotaFor("cpu", queue, p.Requests.MilliCPU, isOfFlavor)
	m.MemoryQuota = r.quotaFor("memory", queue, p.Requests.Memory, isOfFlavor)
	m.QueueMissing = len(r.quotas) > 0 && queue != "" && !own[1].Known
}

// quotaFor returns the quota of a queue for what pods request beside devices.
func (r *reading) quotaFor(resource, queue string, request int64, isOfFlavor func(*quota) bool) gate.Number {
	var sums [2]gate.Number
	for i := range r.quotas {
		if q := &r.quotas[i]; request > 0 && q.resource == resource && q.queue == queue {
			addQuota(&sums, q.unreserved, isOfFlavor(q))
		}
	}
	return prefer(sums)
}

func addQuota(sums *[2]gate.Number, v float64, isOfFlavor bool) {
	if isOfFlavor {
		sums[0] = gate.Known(sums[0].Value + v)
	}
	sums[1] = gate.Known(sums[1].Value + v)
}

// prefer is the sum of the flavor, or that of all flavors. A sum that is not finite is unknown.
func prefer(sums [2]gate.Number) gate.Number {
	n := sums[1]
	if sums[0].Known {
		n = sums[0]
	}
	if math.IsInf(n.Value, 0) {
		return gate.Number{}
	}
	return n
}
