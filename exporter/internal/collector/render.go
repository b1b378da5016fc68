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
)

// familySet collects metric families by name while a snapshot is rendered.
type familySet map[string]*family

// addSeries adds a series to a family and creates the family if necessary.
func (s familySet) addSeries(name string, kind dto.MetricType, help string, labels labelText, v float64) {
	f := s[name]
	if f == nil {
		f = &family{name: name, help: help, kind: kind}
		s[name] = f
	}
	f.series = append(f.series, series{labels, v})
}

// add adds a series of a Plimsoll metric. values are in the order of the metric's labels.
func (s familySet) add(m metric, v float64, values ...string) {
	labels := make([]label, 0, 8) // stays on the stack
	for i, name := range m.labels {
		labels = append(labels, label{name, values[i]})
	}
	s.addSeries(m.name, m.kind, m.help, formatLabels(labels), v)
}

// addOfDevice adds a series of a Plimsoll metric of a device. deviceText are the
// formatted deviceLabels, and values are in the order of the metric's further labels.
func (s familySet) addOfDevice(m metric, v float64, deviceText labelText, values ...string) {
	if further := m.labels[len(deviceLabels):]; len(further) > 0 {
		deviceText = deviceText.append(pairs(further, values)...)
	}
	s.addSeries(m.name, m.kind, m.help, deviceText, v)
}

func (s familySet) sorted() []*family {
	return slices.SortedFunc(maps.Values(s), func(a, b *family) int { return strings.Compare(a.name, b.name) })
}

// renderer writes the metrics of one snapshot. It has no access to the Collector.
type renderer struct {
	node     string
	labels   Labels
	snapshot *snapshot
	families familySet
}

// render returns the metric families of a snapshot, sorted by name.
func render(node string, labels Labels, s *snapshot) []*family {
	r := &renderer{node: node, labels: labels, snapshot: s, families: familySet{}}
	r.families.add(lastCollection, unixSeconds(s.sampledAt), node)
	for _, name := range s.selection.unsupported {
		r.families.add(unsupportedField, 1, node, name)
	}
	for _, d := range s.devices {
		r.renderDCGM(d)
		r.renderDevice(d)
		r.renderPodUsage(d)
		r.renderTPU(d)
		r.renderSensors(d)
	}
	r.renderCalls()
	r.renderFailures()
	r.renderAcceleratorRequests()
	r.renderServices()
	r.renderPods()
	r.renderClaims()
	r.families.add(omittedShares, float64(s.omittedShares), node)
	if s.undescribed != nil {
		r.families.add(undescribedDevices, *s.undescribed, node)
	}
	r.renderNode()
	return r.families.sorted()
}

// renderDCGM writes dcgm-exporter's metrics of a device, with a series for each share. A
// quantity has a single series, so that sums count it once.
func (r *renderer) renderDCGM(d *deviceSnapshot) {
	parts, isFirst := d.gpuInstance()
	if !isFirst || d.device.Vendor != device.NVIDIA || !r.labels.Devices.includes(d.device) {
		return
	}
	selected := r.snapshot.selection
	shares := r.sharesOf(d, holdersOf(parts))
	labelSets := func(shares []share, extra, metricLabels []label) (sets []labelText) {
		for _, s := range shares {
			sets = append(sets, formatLabels(r.dcgmLabels(d, extra, r.attributes(s, metricLabels))))
		}
		return sets
	}
	each := labelSets(shares, nil, nil)
	once := each
	if !r.labels.VirtualGPUs { // with virtual GPUs dcgm-exporter repeats the value
		once = labelSets(combineHolders(shares, d.shareLimit == 0), nil, nil)
	}
	replaced := r.labels.Devices.prefersInstances(d)
	for _, f := range selected.fields {
		v, ok := d.value(f, replaced)
		if !ok {
			continue
		}
		if portions := r.portionsByProcess(d, f.field); portions != nil && shares[0].holder != nil {
			r.renderVirtual(d, f, v, shares, portions)
			continue
		}
		sets := each
		if f.isQuantity() {
			sets = once
		}
		for _, labels := range sets {
			r.families.addSeries(f.name, f.kind, f.help, labels, f.export(v))
		}
	}
	if replaced {
		return // the instances have the event metrics
	}
	if len(selected.xids) > 0 && d.device.ReportsXIDs {
		last := d.wholeDevice().lastXID
		for _, labels := range labelSets(shares, nil, xidLabels(last)) {
			for _, f := range selected.xids {
				r.families.addSeries(f.name, f.kind, f.help, labels, float64(last))
			}
		}
	}
	for _, e := range selected.events {
		r.renderCountedEvent(e, d.wholeDevice(), func(extra []label) []labelText { return labelSets(shares, extra, nil) })
	}
	for _, e := range selected.totals {
		r.renderTotalEvent(e, d.wholeDevice(), func(extra []label) []labelText { return labelSets(shares, extra, nil) })
	}
}

// value returns the value of a field in the last collection.
//
// A MIG instance has its own memory and inherits state such as temperature and clocks
// from its device. It does not inherit fields that describe the whole device. If replaced
// is true, instances stand for the device, so the device has only the fields that describe
// it as a whole.
func (d *deviceSnapshot) value(f dcgmField, replaced bool) (float64, bool) {
	v, ok := d.reading.Get(f.field)
	switch {
	case !d.fresh, replaced && (memoryFields[f.field] || !f.describesWholeDevice()):
		return 0, false
	case ok || d.parent == nil || f.describesWholeDevice() || memoryFields[f.field]:
		return v, ok
	}
	return d.parent.reading.Get(f.field)
}

// memoryFields are the fields that each MIG instance has for itself.
var memoryFields = map[device.Field]bool{device.FBFree: true, device.FBUsed: true, device.FBReserved: true, device.FBTotal: true, device.FBUsedRatio: true}

// isQuantity reports whether the field is an amount that the holders of a device use up
// together, or its limit: memory, power, energy and traffic. A sum over holders would count
// it several times. Families of one device, such as used and free memory, follow the same
// rule, so that expressions over several of them match. Ratios, temperatures, clocks and
// faults are the same for every holder.
func (f dcgmField) isQuantity() bool {
	return slices.Contains([]string{"MiB", "W", "mJ", "B/s", "MB/s"}, f.unit)
}

// describesWholeDevice reports whether the field has no meaning for a single MIG instance,
// unless the instance reports it: usage, power, energy and traffic.
func (f dcgmField) describesWholeDevice() bool {
	return f.isQuantity() && f.unit != "MiB" || f.unit == "%" || f.unit == "0..1"
}

// dcgmLabels returns the labels of a series in dcgm-exporter's order: those of the
// device, of the counter file, of the metric (extra), and the attributes.
func (r *renderer) dcgmLabels(snapshot *deviceSnapshot, extra, attributes []label) []label {
	d := snapshot.device
	modelName := d.Model
	if r.labels.ReplaceBlanks {
		modelName = Model(modelName)
	}
	names, values := dcgmLabelNames, []string{strconv.Itoa(d.Index), d.UUID, d.PCIBusID, d.Minor, modelName, r.node}
	if i := d.Instance; i != nil {
		names, values = instanceLabels, slices.Insert(values, 5, giProfile(i.Profile), strconv.Itoa(i.GI))
		values[1] = i.Parent
	}
	labels := pairs(names, values)
	if r.labels.OldNamespace {
		labels[1].name = "uuid"
	}
	host := len(labels) - 1
	switch {
	case r.labels.NoHostname:
		labels = labels[:host]
	case isSince483(r.labels.Dialect):
		labels[host].name = "hostname"
	}
	for _, l := range r.snapshot.selection.labels {
		if v := l.value(snapshot); v != "" {
			labels = append(labels, label{l.name, v})
		}
	}
	return slices.Concat(labels, extra, attributes)
}

// giProfile returns the profile of the GPU instance that contains an instance: 2g.20gb
// for the compute instance 1c.2g.20gb.
func giProfile(profile string) string {
	if first, rest, ok := strings.Cut(profile, "."); ok && strings.HasSuffix(first, "c") {
		return rest
	}
	return profile
}

// deviceLabelValues returns the values of deviceLabels.
func (r *renderer) deviceLabelValues(d *deviceSnapshot) []string {
	return []string{r.node, d.device.UUID, strconv.Itoa(d.device.Index), modelLabel(d.device)}
}

// renderDevice writes Plimsoll's metrics of a device.
func (r *renderer) renderDevice(d *deviceSnapshot) {
	id := formatLabels(pairs(deviceLabels, r.deviceLabelValues(d)))
	r.families.addOfDevice(deviceLost, boolValue(d.lost), id)
	r.families.addOfDevice(deviceHung, boolValue(d.hung), id)
	r.families.addOfDevice(deviceFailed, boolValue(d.failed), id)
	if !d.reading.Time.IsZero() {
		r.families.addOfDevice(lastSample, unixSeconds(d.reading.Time), id)
	}
	if d.readDuration > 0 {
		r.families.addOfDevice(readDuration, d.readDuration.Seconds(), id)
	}
	if d.fresh {
		r.renderDerived(d.reading, id)
	}
	if clique, ok := d.reading.Get(device.FabricClique); ok && d.fresh {
		r.families.addOfDevice(fabricInfo, 1, id, d.reading.FabricCluster, strconv.FormatFloat(clique, 'f', -1, 64))
	}
	if _, ok := utilization(d.reading); ok && d.fresh && len(d.holders) > 0 {
		r.families.addOfDevice(idleAllocated, d.idleAllocated.Seconds(), id)
	}
	for _, h := range d.holders {
		r.families.addOfDevice(ownerInfo, 1, id, h.Namespace, h.Pod, h.Container)
	}
	r.renderShares(d, id)
	r.renderClaimShares(d, id)
	r.renderFractions(d, id)
	for _, n := range d.implausible {
		r.families.addOfDevice(bogusValues, n.count, id, fieldName(d.device.Vendor, n.field))
	}
	for _, n := range d.xids {
		r.families.addOfDevice(xidTotal, n.count, id, strconv.FormatUint(n.xid, 10), severity(n.xid))
	}
}

// renderDerived writes values that follow from a reading, in base units.
func (r *renderer) renderDerived(reading device.Reading, id labelText) {
	// Newer drivers divide the time of heat by who reduced the clocks. Older ones only report
	// the sum.
	_, isDivided := reading.Get(device.SWThermalSlowdown)
	for _, reason := range throttleReasons {
		if ns, ok := reading.Get(reason.field); ok && (!isDivided || reason.field != device.ThermalViolation) {
			r.families.addOfDevice(throttled, ns/1e9, id, reason.name)
		}
	}
	for _, t := range traffic {
		if bytes, ok := reading.Get(t.field); ok {
			r.families.addOfDevice(t.metric, bytes, id, t.direction)
		}
	}
	if free, ok := reading.Get(device.FBFree); ok && !reading.MIG { // in MIG mode the instances report their memory
		r.families.addOfDevice(memoryHeadroom, free*(1<<20), id)
	}
	if margin, ok := reading.Get(device.ThermalMargin); ok {
		r.families.addOfDevice(thermalHeadroom, margin, id)
	}
	if pending, ok := reading.Get(device.RowRemapPending); ok {
		r.families.addOfDevice(remapPending, pending, id)
	}
	limit, limited := reading.Get(device.PowerLimit)
	if draw, ok := reading.Get(device.PowerUsage); ok && limited {
		r.families.addOfDevice(powerHeadroom, max(0, limit-draw), id)
	}
}

// renderCalls writes the longest duration of each library call.
func (r *renderer) renderCalls() {
	longest := map[string]time.Duration{}
	for _, d := range r.snapshot.devices {
		if !d.fresh {
			continue
		}
		for _, call := range d.reading.Calls {
			longest[call.Name] = max(longest[call.Name], call.Took)
		}
	}
	for _, name := range sortedKeys(longest) {
		r.families.add(callDuration, longest[name].Seconds(), r.node, name)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// boolValue returns 1 for true and 0 for false.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
