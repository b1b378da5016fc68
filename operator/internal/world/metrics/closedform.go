package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Ages in seconds that the rules compare with.
const (
	trustedAge = 60
	reportAge  = 86_400
)

// toleratedTaints are the keys of plimsoll:tolerated_taint:info.
var toleratedTaints = append(slices.Clone(deviceTaints), "sku", "dedicated", "kubernetes.azure.com/scalesetpriority",
	"cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible", "cloud.google.com/gke-queued")

// deviceTaints are the keys of taints that each pod with devices tolerates.
var deviceTaints = []string{"nvidia.com/gpu", "google.com/tpu", "amd.com/gpu"}

// clusterState is what ClosedForm remembers of a cluster.
type clusterState struct {
	exporters map[string]*timeline[exporterData]
	kube      timeline[kubeData]
	kueue     timeline[kueueData]

	// reports are the last collections by node, as of evaluatedAt.
	reports     map[string]float64
	evaluatedAt int64
	// expectedAt is the last evaluation with an expected node.
	expectedAt int64
	// hasDevices: the rules about devices are recorded, too. idleSince is their memory.
	hasDevices bool
	idleSince  map[heldDevice]float64
	recorded   *target
}

func newClusterState(cluster string) *clusterState {
	return &clusterState{
		exporters: map[string]*timeline[exporterData]{}, reports: map[string]float64{}, evaluatedAt: math.MinInt64 / 2, expectedAt: math.MinInt64 / 2,
		recorded: &target{cluster: cluster},
	}
}

func (c *clusterState) exporter(node string) *timeline[exporterData] {
	if c.exporters[node] == nil {
		c.exporters[node] = &timeline[exporterData]{}
	}
	return c.exporters[node]
}

// evaluate records the results of the rules for a cluster.
func (c *clusterState) evaluate(e *export) error {
	c.evaluateNodes(e)
	if kueue := c.kueue.visible(e.at); len(kueue.data.quotas) > 0 {
		for _, q := range kueue.data.quotas {
			e.add("cluster_queue:kueue_unreserved_quota:max", q.unreserved, "cluster_queue", q.queue, "flavor", q.flavor, "resource", q.resource)
			e.add("cluster_queue:kueue_quota_limit:max", q.limit, "cluster_queue", q.queue, "flavor", q.flavor, "resource", q.resource)
			if q.inCohort {
				e.add("cluster_queue:kueue_nominal_unreserved_quota:max", q.nominalUnreserved, "cluster_queue", q.queue, "flavor", q.flavor, "resource", q.resource)
			}
		}
		e.add("cluster:kueue_sample_timestamp_seconds:min", seconds(kueue.at))
	}
	c.evaluatedAt = e.at
	return e.finish()
}

// resourceModel are the labels of sums over a cluster.
type resourceModel struct{ resource, model string }

// sums over a cluster, by resource and model.
type sums struct {
	devices, allocated, unhealthy, usable, free, largest float64
	fits                                                 [4]float64
	// hasFree means that a node has free devices for placement, which may be 0.
	hasFree bool
}

var fitSizes = []string{"1", "2", "4", "8"}

func (c *clusterState) evaluateNodes(e *export) {
	kube, exporters := c.kube.visible(e.at), c.visibleExporters(e.at)
	c.updateReports(e.at, exporters, kube.data.nodes)
	expected := map[string]bool{}
	for node := range c.reports {
		expected[node] = true
	}
	for _, name := range kube.data.names {
		n := kube.data.nodes[name]
		if n.accelerators > 0 {
			expected[name] = true
		}
		n.export(e, name)
	}
	if len(expected) > 0 {
		c.expectedAt = e.at
	}
	totals := map[resourceModel]*sums{}
	known, oldest := 0, math.Inf(1)
	for _, node := range slices.Sorted(maps.Keys(exporters)) {
		x := exporters[node]
		if !x.hasDevices {
			continue
		}
		e.add("node_resource_state:plimsoll_excess_devices:sum", kube.data.limit(node, &x.deviceCounts), "node", node)
		key := resourceModel{x.resource, x.model}
		if totals[key] == nil {
			totals[key] = &sums{}
		}
		t := totals[key]
		t.devices, t.allocated, t.unhealthy = t.devices+x.allocatable, t.allocated+x.allocated, t.unhealthy+x.unhealthy
		if x.collected <= seconds(e.at)-trustedAge || x.collected >= seconds(e.at)+trustedAge {
			continue
		}
		oldest = min(oldest, x.collected)
		e.add("node:plimsoll_sample_timestamp_seconds:trusted", x.collected, "node", node)
		if n := kube.data.nodes[node]; n != nil {
			known++
			c.addNode(e, t, node, &x, number(n.isPlaceable))
		}
	}
	exportSums(e, totals)
	sampledAt := 0.0
	switch {
	case known > 0 && float64(known)/float64(len(expected)) >= 0.5:
		sampledAt = oldest
	case len(kube.data.nodes) > 0 && e.at-c.expectedAt >= lookback && !kube.data.hasExporter:
		sampledAt = seconds(kube.at)
	}
	if sampledAt > 0 {
		e.add("cluster:plimsoll_sample_timestamp_seconds:min", sampledAt)
	}
	if !c.hasDevices {
		return
	}
	if sampledAt > 0 {
		e.add("cluster:plimsoll_device_sample_timestamp_seconds:min", sampledAt)
	}
	c.evaluateDevices(e, exporters)
}

// visibleExporters returns what the exporters of the nodes export. It forgets those that are gone.
func (c *clusterState) visibleExporters(at int64) map[string]exporterData {
	exporters := map[string]exporterData{}
	for node, l := range c.exporters {
		if s := l.visible(at); s.up {
			exporters[node] = s.data
		} else if at-l.states[len(l.states)-1].at >= lookback {
			delete(c.exporters, node)
		}
	}
	return exporters
}

func (n *kubeNode) export(e *export, name string) {
	e.add("node:plimsoll_placeable:bool", number(n.isPlaceable), "node", name)
	for _, d := range n.domains {
		e.add("node:plimsoll_topology:info", 1, "node", name, "level", d.level, "domain", d.domain)
	}
	if !n.isPlaceable {
		return
	}
	for _, a := range n.total {
		e.add("node:kube_allocatable:placeable", a.value, "node", name, "resource", a.resource)
	}
	for _, a := range n.unrequested {
		e.add("node:kube_unrequested:placeable", a.value, "node", name, "resource", a.resource)
	}
}

// updateReports calculates node:plimsoll_last_report_timestamp_seconds:max.
func (c *clusterState) updateReports(at int64, exporters map[string]exporterData, nodes map[string]*kubeNode) {
	maps.DeleteFunc(c.reports, func(node string, report float64) bool {
		isDeleted := len(nodes) > 0 && nodes[node] == nil
		return at-c.evaluatedAt >= lookback || report <= seconds(at)-reportAge || isDeleted
	})
	for node, x := range exporters {
		c.reports[node] = x.collected
	}
}

// addNode exports the devices of a trusted node and adds them to the sums of its cluster.
func (c *clusterState) addNode(e *export, t *sums, node string, x *exporterData, placeable float64) {
	free := x.free * placeable
	e.add("node_resource_model:plimsoll_free_devices:placeable", free, "node", node, "resource", x.resource, "model", x.model)
	e.add("node_resource_model:plimsoll_devices:placeable", x.allocatable*placeable, "node", node, "resource", x.resource, "model", x.model)
	t.hasFree = true
	t.free, t.largest, t.usable = t.free+free, max(t.largest, free), t.usable+max(0, x.allocatable-x.unhealthy)*placeable
	for i := range t.fits {
		t.fits[i] += math.Floor(free / float64(int(1)<<i))
	}
}

func exportSums(e *export, totals map[resourceModel]*sums) {
	byResource := map[string]*sums{}
	keys := slices.SortedFunc(maps.Keys(totals), func(a, b resourceModel) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.model, b.model))
	})
	for _, key := range keys {
		t, kv := totals[key], []string{"resource", key.resource, "model", key.model}
		all := byResource[key.resource]
		if all == nil {
			all = &sums{}
			byResource[key.resource] = all
		}
		all.devices, all.allocated = all.devices+t.devices, all.allocated+t.allocated
		e.add("cluster_resource_model:plimsoll_devices:sum", t.devices, kv...)
		e.add("cluster_resource_model:plimsoll_allocated_devices:sum", t.allocated, kv...)
		e.add("cluster_resource_model:plimsoll_unhealthy_devices:sum", t.unhealthy, kv...)
		if !t.hasFree {
			continue
		}
		all.hasFree = true
		all.free, all.usable = all.free+t.free, all.usable+t.usable
		e.add("cluster_resource_model:plimsoll_free_devices:sum", t.free, kv...)
		e.add("cluster_resource_model:plimsoll_node_free_devices:max", t.largest, kv...)
		e.add("cluster_resource_model:plimsoll_usable_devices:sum", t.usable, kv...)
		for i, size := range fitSizes {
			e.add("cluster_resource_model_size:plimsoll_fits:sum", t.fits[i], "resource", key.resource, "model", key.model, "size", size)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		t := byResource[resource]
		e.add("cluster_resource:plimsoll_devices:sum", t.devices, "resource", resource)
		e.add("cluster_resource:plimsoll_allocated_devices:sum", t.allocated, "resource", resource)
		if t.hasFree {
			e.add("cluster_resource:plimsoll_free_devices:sum", t.free, "resource", resource)
			e.add("cluster_resource:plimsoll_usable_devices:sum", t.usable, "resource", resource)
		}
	}
}
