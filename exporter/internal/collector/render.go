package collector

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// page collects families while a snapshot is rendered.
type page map[string]*family

func (p page) add(name string, kind dto.MetricType, help string, labels labelText, v float64) {
	f := p[name]
	if f == nil {
		f = &family{name: name, help: help, kind: kind}
		p[name] = f
	}
	f.series = append(f.series, series{labels, v})
}

// own adds one of our metrics; values are in the order of its labels.
func (p page) own(o own, v float64, values ...string) {
	p.add(o.name, o.kind, o.help, text(pairs(o.labels, values)), v)
}

func (p page) families() []*family {
	return slices.SortedFunc(maps.Values(p), func(a, b *family) int { return strings.Compare(a.name, b.name) })
}

// render everything that is known now.
func (c *Collector) render(now time.Time, devices []device.Device, pods podmap.Map, podErr error) []*family {
	p := page{}
	p.own(lastCollection, seconds(c.oldest()), c.cfg.Node)
	s := c.selected.Load()
	for _, name := range s.unsupported {
		p.own(unsupported, 1, c.cfg.Node, name)
	}
	for _, d := range devices {
		k := c.known[d.UUID]
		holders := holdersOf(pods, d)
		c.renderDevice(p, s, k, holders)
		c.renderOwn(p, now, k, holders)
	}
	c.renderNode(p, devices, pods, podErr)
	return p.families()
}

// renderDevice writes dcgm-exporter's metrics: one series, or one for each
// container that holds the device.
func (c *Collector) renderDevice(p page, s *selection, k *known, holders []podmap.Holder) {
	labelSets := []labelText{text(c.dcgm(s, k.device, nil))}
	if len(holders) > 0 {
		labelSets = labelSets[:0]
		for _, h := range holders {
			labelSets = append(labelSets, text(c.dcgm(s, k.device, &h)))
		}
	}
	for _, labels := range labelSets {
		if k.fresh {
			for _, f := range s.fields {
				if v, ok := k.reading.Get(f.field); ok {
					p.add(f.name, f.kind, f.help, labels, v)
				}
			}
		}
		if s.xid != nil && k.device.TellsXIDs {
			p.add(s.xid.name, s.xid.kind, s.xid.help, labels, float64(k.lastXID))
		}
	}
}

func (c *Collector) dcgm(s *selection, d device.Device, h *podmap.Holder) []label {
	options, model := c.cfg.Labels, d.Model
	if options.ReplaceBlanks {
		model = Model(model)
	}
	labels := pairs(dcgmLabels, []string{strconv.Itoa(d.Index), d.UUID, d.PCIBusID, d.Minor, model, c.cfg.Node})
	host := len(labels) - 1
	switch {
	case options.NoHostname:
		labels = labels[:host]
	case options.Dialect == "4.8":
		labels[host].name = "hostname"
	}
	if s.driver && d.Driver != "" {
		labels = append(labels, pairs([]string{driverVersion}, []string{d.Driver})...)
	}
	if h != nil {
		names := []string{"container", "namespace", "pod"}
		if options.OldNamespace {
			names = []string{"container_name", "pod_namespace", "pod_name"}
		}
		labels = append(labels, pairs(names, []string{h.Container, h.Namespace, h.Pod})...)
	}
	return labels
}

// renderOwn writes what placement needs of one device.
func (c *Collector) renderOwn(p page, now time.Time, k *known, holders []podmap.Holder) {
	id := []string{c.cfg.Node, k.device.UUID, strconv.Itoa(k.device.Index), Model(k.device.Model)}
	p.own(deviceLost, flag(k.lost), id...)
	p.own(deviceHung, flag(k.hung()), id...)
	p.own(deviceFailed, flag(k.failed), id...)
	if !k.reading.Time.IsZero() {
		p.own(lastSample, seconds(k.reading.Time), id...)
	}
	if k.took > 0 {
		p.own(callSeconds, k.took.Seconds(), id...)
	}
	if k.fresh {
		renderDerived(p, k.reading, id)
	}
	if _, tells := k.reading.Get(device.GPUUtil); tells && len(holders) > 0 {
		idle := 0.0
		if !k.idleFrom.IsZero() {
			idle = now.Sub(k.idleFrom).Seconds()
		}
		p.own(idleAllocated, idle, id...)
	}
	for _, h := range holders {
		p.own(ownerInfo, 1, append(id[:4:4], h.Namespace, h.Pod, h.Container)...)
	}
	for f, n := range k.bogus {
		if n > 0 {
			p.own(bogusValues, n, append(id[:4:4], fieldName(device.Field(f)))...)
		}
	}
	for _, xid := range sortedXIDs(k.xids) {
		p.own(xidTotal, k.xids[xid], append(id[:4:4], strconv.FormatUint(xid, 10), severity(xid))...)
	}
}

// renderDerived writes, in base units, what follows from a reading.
func renderDerived(p page, r device.Reading, id []string) {
	for _, reason := range reasons {
		if ns, ok := r.Get(reason.field); ok {
			p.own(throttled, ns/1e9, append(id[:4:4], reason.name)...)
		}
	}
	for _, way := range traffic {
		if bytes, ok := r.Get(way.field); ok {
			p.own(way.own, bytes, append(id[:4:4], way.direction)...)
		}
	}
	if free, ok := r.Get(device.FBFree); ok {
		p.own(memoryRoom, free*(1<<20), id...)
	}
	if left, ok := r.Get(device.ThermalMargin); ok {
		p.own(thermalRoom, left, id...)
	}
	limit, limited := r.Get(device.PowerLimit)
	if draw, ok := r.Get(device.PowerUsage); ok && limited {
		p.own(powerRoom, max(0, limit-draw), id...)
	}
}

// renderNode counts the node's devices by resource and model. Without the
// kubelet's word nothing is known to be free, and the counts are absent.
func (c *Collector) renderNode(p page, devices []device.Device, pods podmap.Map, podErr error) {
	if podErr != nil {
		p.own(mappedDevices, 0, c.cfg.Node)
		p.own(unmapped, float64(len(devices)), c.cfg.Node, "kubelet does not answer")
		return
	}
	type group struct{ resource, model string }
	counts := map[group]map[string]float64{}
	free, linked := map[group][]device.Device{}, map[group]bool{}
	mapped := 0.0
	for _, d := range devices {
		resource, ok := pods.Allocatable[d.UUID]
		if !ok {
			resource, ok = pods.Allocatable[d.Minor]
		}
		if !ok {
			continue
		}
		mapped++
		g := group{resource, Model(d.Model)}
		if counts[g] == nil {
			counts[g] = map[string]float64{"allocatable": 0, "allocated": 0, "free": 0, "unhealthy": 0}
		}
		held := len(holdersOf(pods, d)) > 0
		healthy := c.known[d.UUID].healthy()
		shared := pods.Shared[d.UUID] || pods.Shared[d.Minor]
		counts[g]["allocatable"]++
		counts[g]["allocated"] += flag(held)
		counts[g]["unhealthy"] += flag(!healthy)
		if !held && healthy && !shared {
			counts[g]["free"]++
			free[g] = append(free[g], d)
		}
		linked[g] = linked[g] || len(d.Links) > 0
	}
	for g, states := range counts {
		for state, n := range states {
			p.own(nodeDevices, n, c.cfg.Node, g.resource, g.model, state)
		}
		if linked[g] {
			p.own(largestFree, float64(largestGroup(free[g])), c.cfg.Node, g.resource, g.model)
		}
	}
	for _, name := range []string{nodeDevices.name, largestFree.name} {
		if f := p[name]; f != nil {
			slices.SortFunc(f.series, func(a, b series) int { return strings.Compare(string(a.labels), string(b.labels)) })
		}
	}
	p.own(mappedDevices, mapped, c.cfg.Node)
	if missing := float64(len(devices)) - mapped; missing > 0 {
		p.own(unmapped, missing, c.cfg.Node, "not allocatable by the kubelet")
	}
	for reason, n := range pods.Unmapped {
		p.own(unmapped, float64(n), c.cfg.Node, reason)
	}
}

func holdersOf(pods podmap.Map, d device.Device) []podmap.Holder {
	if holders := pods.Holders[d.UUID]; len(holders) > 0 {
		return holders
	}
	return pods.Holders[d.Minor]
}

// Model is a product name in the form of GPU feature discovery's labels.
func Model(product string) string { return strings.Join(strings.Fields(product), "-") }

func sortedXIDs(xids map[uint64]float64) []uint64 {
	return slices.Sorted(maps.Keys(xids))
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
