package world

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// metricsState scrapes the clusters into the metrics store, and into readings.
type metricsState struct {
	world *World
	// store is nil in a plain world.
	store     *metrics.Store
	transport *metrics.Transport
	readings  *metrics.Readings
}

func (m *metricsState) open(w *World, rules *metrics.Rules) error {
	options := metrics.Options{Mode: metrics.ClosedForm, ScrapeInterval: w.settings.ScrapeInterval, Devices: w.settings.Reclaim != nil || w.settings.Gate.Profiles != nil, Topology: w.settings.Gate.Queries.Fit != ""}
	if w.settings.Rules {
		options.Mode, options.Rules = metrics.RulesEngine, rules
	}
	var err error
	if m.store, err = metrics.NewStore(options); err != nil {
		return err
	}
	w.Store = m.store
	m.transport = &metrics.Transport{Store: m.store, Intercept: m.intercept}
	return nil
}

// start schedules the scrapes of each cluster, at a phase of its own, and the rules.
func (m *metricsState) start(w *World) {
	m.world, m.readings = w, metrics.NewReadings()
	interval := m.world.settings.ScrapeInterval
	for _, c := range m.world.clusters {
		m.world.loop.After(m.world.dice.between(0, interval, "scrape "+c.spec.Name), func() { m.scrape(c) })
	}
	m.world.loop.After(interval, m.evaluate)
}

func (m *metricsState) scrape(c *cluster) {
	w := m.world
	w.loop.After(w.settings.ScrapeInterval, func() { m.scrape(c) })
	now := w.loop.Now()
	nodesFailed, kueueFailed := w.failedTargets(c)
	if !nodesFailed {
		c.scrapedAt, c.shown = now, !c.bound.isEmpty()
	}
	summary := c.summary(now)
	summary.NodesFailed, summary.KueueFailed = nodesFailed, kueueFailed
	m.readings.Scrape(c.spec.Name, summary)
	if m.store == nil {
		return
	}
	snapshot := c.snapshot()
	switch {
	case nodesFailed:
		snapshot.Failed = []metrics.Part{metrics.All}
	case kueueFailed:
		snapshot.Failed = []metrics.Part{metrics.Kueue}
	}
	if err := m.store.Scrape(now, snapshot); err != nil {
		panic(err)
	}
}

// failedTargets are the targets of a cluster that do not respond.
func (w *World) failedTargets(c *cluster) (nodes, kueue bool) {
	lost := w.faults.lost[c.spec.Name]
	return lost == "scrape", lost == "scrape" || lost == "kueue"
}

func (m *metricsState) evaluate() {
	w := m.world
	w.loop.After(w.settings.ScrapeInterval, m.evaluate)
	m.readings.Evaluate(w.loop.Now())
	if m.store == nil {
		return
	}
	if err := m.store.Evaluate(w.loop.Now()); err != nil {
		panic(err)
	}
}

// intercept applies the faults of the metrics store to a query.
func (m *metricsState) intercept(_ *http.Request, expr string) metrics.Response {
	w := m.world
	w.faults.mu.Lock()
	defer w.faults.mu.Unlock()
	r := metrics.Response{Latency: w.faults.promSlow + w.queryTime("query "+expr)}
	if w.faults.promDown > 0 {
		r.Status, r.Body = http.StatusServiceUnavailable, "no healthy upstream"
	}
	for _, c := range w.clusters {
		switch w.faults.lost[c.spec.Name] {
		case "store":
			r.HideClusters = append(r.HideClusters, c.spec.Name)
			r.Warnings = append(r.Warnings, "store of "+c.spec.Name+" is not available")
		case "silent store":
			r.HideClusters = append(r.HideClusters, c.spec.Name)
		}
	}
	return r
}

// snapshot is what the exporters and Kueue of a cluster report.
func (c *cluster) snapshot() metrics.Snapshot {
	s := metrics.Snapshot{Cluster: c.spec.Name, Objects: slices.Concat(c.objects, c.localQueues)}
	lies := c.world.faults.lies[c.spec.Name]
	for _, n := range c.nodes {
		if !n.ready {
			continue
		}
		s.Nodes = append(s.Nodes, metrics.Node{Name: n.name, Labels: n.pool.Labels, Model: n.pool.Model, Resource: n.pool.Resource,
			Devices: n.pool.Devices, Claimed: lies, Allocated: n.devices, Unhealthy: n.unusable, Taint: n.pool.Taint, Ready: true,
			CPU: n.pool.CPU, CPUUsed: n.cpu, Memory: n.pool.Memory, MemoryUsed: n.memory})
	}
	for p := range c.bound.all() {
		if !p.node.ready {
			continue
		}
		kind, name := ownerOf(p)
		s.Pods = append(s.Pods, metrics.Pod{Namespace: p.job.key.Namespace, Name: p.name, Node: p.node.name, Resource: p.node.pool.Resource, Model: p.node.pool.Model, Devices: p.devices,
			OwnerKind: kind, OwnerName: name, Utilization: p.utilization()})
	}
	s.Queues, s.Extra = c.queues(), c.steps()
	return s
}

// queues are the quotas that Kueue reports.
func (c *cluster) queues() (list []metrics.Queue) {
	used := c.kueue.workloads.usage()
	for _, name := range slices.Sorted(maps.Keys(c.kueue.quota.queues)) {
		q := c.kueue.quota.queues[name]
		for _, f := range c.kueue.quota.flavors {
			nominal, has := q.nominal[f.name]
			if !has {
				continue
			}
			list = append(list, metrics.Queue{Name: q.spec.Name, Cohort: q.spec.Cohort, Flavor: f.name, Resource: f.resource,
				Nominal: nominal, Reserved: used[q.spec.Name][f.name], BorrowingLimit: q.spec.BorrowingLimit})
		}
		if q.cpu > 0 {
			list = append(list, metrics.Queue{Name: q.spec.Name, Flavor: cpuFlavor, Resource: "cpu", Nominal: q.cpu, Reserved: c.kueue.cpuUsed(q.spec.Name)})
		}
	}
	return list
}

// summary is what the default queries of gates read of a scrape. Nodes that differ only in their names are counted.
func (c *cluster) summary(at time.Time) *metrics.Summary {
	s := &metrics.Summary{At: at, Queues: c.queues(), LocalQueues: c.localQueues}
	last := map[*Pool][]int{} // groups by the number of allocated devices, of the last nodes
	for _, n := range c.nodes {
		if !n.ready {
			continue
		}
		if last[n.pool] == nil {
			last[n.pool] = make([]int, n.pool.Devices+1)
		}
		group := metrics.NodeGroup{Resource: n.pool.Resource, Model: n.pool.Model, Taint: n.pool.Taint,
			Devices: n.pool.Devices, Claimed: c.world.faults.lies[c.spec.Name], Allocated: n.devices, Unhealthy: n.unusable}
		if n.pool.CPU > 0 {
			group.CPU, group.CPUUsed = n.pool.CPU, n.cpu
		}
		if n.pool.Memory > 0 {
			group.Memory, group.MemoryUsed = n.pool.Memory, n.memory
		}
		i := &last[n.pool][n.devices]
		if *i == 0 || !s.Groups[*i-1].IsLike(&group) {
			s.Groups = append(s.Groups, group)
			*i = len(s.Groups)
		}
		s.Groups[*i-1].Nodes++
	}
	return s
}

// Candidates are the clusters of a gate with what its default queries would say of them now, whatever faults the
// metrics store has.
func (w *World) Candidates(g gatestate.Gate, f shape.Facts) []gate.Candidate {
	return w.metrics.readings.Candidates(g, f)
}
