package collector

import (
	"cmp"
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
	labels := make([]label, 0, 8) // stays on the stack
	for i, name := range o.labels {
		labels = append(labels, label{name, values[i]})
	}
	p.add(o.name, o.kind, o.help, text(labels), v)
}

// of adds one of our metrics of a device; values are those of its further labels.
func (p page) of(o own, v float64, device labelText, values ...string) {
	if further := o.labels[len(deviceLabels):]; len(further) > 0 {
		device = device.with(pairs(further, values)...)
	}
	p.add(o.name, o.kind, o.help, device, v)
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
	held := holders(pods, devices)
	for _, d := range devices {
		k := c.known[d.UUID]
		if podErr == nil {
			k.hold(held[d.UUID], now)
		}
		c.renderDevice(p, now, s, k, pods, held)
		c.renderOwn(p, now, k, held[d.UUID])
		c.renderShares(p, k, pods, podErr)
		c.renderTPU(p, k, held[d.UUID])
	}
	c.renderCalls(p, devices)
	c.renderTPUNode(p, pods)
	c.renderPods(p, held)
	c.renderUndescribed(p)
	c.renderNode(p, devices, pods, held, podErr)
	return p.families()
}

// renderDevice writes dcgm-exporter's metrics: one series, or one for each
// container that holds the device. What the holders of a device use up together
// stands once and names none of them, so that no sum counts it twice.
func (c *Collector) renderDevice(p page, now time.Time, s *selection, k *known, pods podmap.Map, held map[string][]podmap.Holder) {
	parts, first := sameGI(k)
	if !first {
		return
	}
	if !c.cfg.Labels.Devices.shows(k.device) {
		return
	}
	seats := c.seats(k.device, holdersOf(parts, held), pods)
	if len(seats) == 0 {
		seats = []seat{{}}
	}
	sets := func(of []seat, extra, attributes []label) (out []labelText) {
		for _, one := range of {
			out = append(out, text(c.dcgm(s, k.device, extra, c.attributes(one, attributes))))
		}
		return out
	}
	each := sets(seats, nil, nil)
	together := each
	if !c.cfg.Labels.VirtualGPUs { // dcgm-exporter's way with virtual GPUs is to repeat
		together = sets([]seat{common(seats)}, nil, nil)
	}
	inParts := c.cfg.Labels.Devices.inParts(k)
	for _, f := range s.fields {
		v, ok := k.tell(f, inParts)
		if !ok {
			continue
		}
		labelSets := each
		if additive(f) {
			labelSets = together
		}
		for _, labels := range labelSets {
			p.add(f.name, f.kind, f.help, labels, v)
		}
	}
	if inParts {
		return // events, too, are told by the instances
	}
	if s.xid != nil && k.device.ReportsXIDs {
		last := k.whole().lastXID
		for _, labels := range sets(seats, nil, xidAttributes(last)) {
			p.add(s.xid.name, s.xid.kind, s.xid.help, labels, float64(last))
		}
	}
	for _, e := range s.counted {
		c.renderCounted(p, e, k.whole(), now, func(extra []label) []labelText { return sets(seats, extra, nil) })
	}
}

// dcgm labels in dcgm-exporter's order: the device's, those of the counter file and
// of the metric, and the attributes.
func (c *Collector) dcgm(s *selection, d device.Device, extra, attributes []label) []label {
	options, model := c.cfg.Labels, d.Model
	if options.ReplaceBlanks {
		model = Model(model)
	}
	names, values := dcgmLabels, []string{strconv.Itoa(d.Index), d.UUID, d.PCIBusID, d.Minor, model, c.cfg.Node}
	if i := d.Instance; i != nil {
		names, values = instanceLabels, slices.Insert(values, 5, giProfile(i.Profile), strconv.Itoa(i.GI))
		values[1] = i.Parent
	}
	labels := pairs(names, values)
	if options.OldNamespace {
		labels[1].name = "uuid"
	}
	host := len(labels) - 1
	switch {
	case options.NoHostname:
		labels = labels[:host]
	case options.Dialect == "4.8":
		labels[host].name = "hostname"
	}
	for _, l := range s.labels {
		if v := l.of(d); v != "" {
			labels = append(labels, label{l.name, v})
		}
	}
	return slices.Concat(labels, extra, attributes)
}

// id are the values of deviceLabels.
func (c *Collector) id(k *known) []string {
	return []string{c.cfg.Node, k.device.UUID, strconv.Itoa(k.device.Index), modelOf(k.device)}
}

// renderOwn writes what placement needs of one device.
func (c *Collector) renderOwn(p page, now time.Time, k *known, holders []podmap.Holder) {
	id := text(pairs(deviceLabels, c.id(k)))
	p.of(deviceLost, flag(k.lost), id)
	p.of(deviceHung, flag(k.hung()), id)
	p.of(deviceFailed, flag(k.failed), id)
	if !k.reading.Time.IsZero() {
		p.of(lastSample, seconds(k.reading.Time), id)
	}
	if k.took > 0 {
		p.of(readSeconds, k.took.Seconds(), id)
	}
	if k.fresh {
		renderDerived(p, k.reading, id)
	}
	if _, tells := busy(k.reading); tells && k.fresh && len(holders) > 0 {
		p.of(idleAllocated, k.idle(now).Seconds(), id)
	}
	for _, h := range holders {
		p.of(ownerInfo, 1, id, h.Namespace, h.Pod, h.Container)
	}
	for f, n := range k.bogus {
		if n > 0 {
			p.of(bogusValues, n, id, fieldName(device.Field(f)))
		}
	}
	for _, xid := range sortedKeys(k.xids) {
		p.of(xidTotal, k.xids[xid], id, strconv.FormatUint(xid, 10), severity(xid))
	}
}

// renderCalls writes which calls of the vendors' libraries are slow.
func (c *Collector) renderCalls(p page, devices []device.Device) {
	longest := map[string]time.Duration{}
	for _, d := range devices {
		if k := c.known[d.UUID]; k.fresh {
			for _, call := range k.reading.Calls {
				longest[call.Name] = max(longest[call.Name], call.Took)
			}
		}
	}
	for _, name := range sortedKeys(longest) {
		p.own(callSeconds, longest[name].Seconds(), c.cfg.Node, name)
	}
}

// renderDerived writes, in base units, what follows from a reading.
func renderDerived(p page, r device.Reading, id labelText) {
	for _, reason := range reasons {
		if ns, ok := r.Get(reason.field); ok {
			p.of(throttled, ns/1e9, id, reason.name)
		}
	}
	for _, way := range traffic {
		if bytes, ok := r.Get(way.field); ok {
			p.of(way.own, bytes, id, way.direction)
		}
	}
	if free, ok := r.Get(device.FBFree); ok && !r.MIG { // its instances tell theirs
		p.of(memoryRoom, free*(1<<20), id)
	}
	if left, ok := r.Get(device.ThermalMargin); ok {
		p.of(thermalRoom, left, id)
	}
	limit, limited := r.Get(device.PowerLimit)
	if draw, ok := r.Get(device.PowerUsage); ok && limited {
		p.of(powerRoom, max(0, limit-draw), id)
	}
}

// Model is a product name in the form of GPU feature discovery's labels.
func Model(product string) string { return strings.Join(strings.Fields(product), "-") }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
