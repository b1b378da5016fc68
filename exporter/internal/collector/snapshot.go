package collector

import (
	"maps"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// snapshot is the result of accounting one collection. It never changes, and rendering
// uses nothing else, so that rendering a snapshot twice gives the same metrics.
type snapshot struct {
	sampledAt time.Time // the oldest of what the snapshot consists of
	selection *selection
	devices   []*deviceSnapshot // the MIG instances of a device follow the device
	pods      podmap.Map
	podsErr   error // the holders of devices are unknown

	// Pod metadata from the API server.
	podMeta      map[podName]podmap.Meta // of the pods that hold devices; nil if the API server is not queried
	apiReachable bool
	exportOwners bool
	sharesOfKAI  bool         // KAI Scheduler may share whole devices
	claims       *claimShares // nil if the API server is not queried for claims

	callErrors    map[string]float64 // failures by library call
	omittedShares int                // shares without series of their own

	undescribed *float64 // number of devices without identity; nil if no source counts them
	services    []device.Service
}

// deviceSnapshot is the accounted state of a device or MIG instance.
type deviceSnapshot struct {
	device    device.Device
	parent    *deviceSnapshot   // the device of a MIG instance
	instances []*deviceSnapshot // the MIG instances of a device

	reading      device.Reading // the last successful one
	readDuration time.Duration
	fresh        bool // the last collection read the device successfully
	lost         bool
	failed       bool
	hung         bool

	xids              []xidCount
	lastXID           uint64
	recentXIDs        []event
	recentClockEvents []event
	clockEventTotals  []eventTotal
	implausible       []implausibleCount

	allocated     bool            // also without holders, if a scheduler reserved the device for other pods
	holders       []podmap.Holder // with series of their own
	allHolders    []podmap.Holder
	jobs          []string // outside of Kubernetes
	shareLimit    int      // number of shares with series of their own; 0 for all
	idleAllocated time.Duration
	usage         podUsage

	xidWindow, clockEventsWindow time.Duration
}

// xidCount is the number of events with an XID since the exporter started.
type xidCount struct {
	xid   uint64
	count float64
}

// implausibleCount is the number of impossible values of a field since the exporter started.
type implausibleCount struct {
	field device.Field
	count float64
}

func (d *deviceSnapshot) isHealthy() bool { return !d.lost && !d.failed && !d.hung }

// isPartitioningKnown reports whether it is known if the device can be allocated as a whole.
// It is unknown before the first reading of a device: on a node with devices of several
// vendors, one vendor can be collected before the devices of another have been read.
func (d *deviceSnapshot) isPartitioningKnown() bool {
	return d.parent != nil || d.fresh && !d.reading.PartitionsUnknown
}

// mayBePartitioned reports whether the device is in MIG mode, or its mode is unknown. A device that
// cannot be read keeps its last mode.
func (d *deviceSnapshot) mayBePartitioned() bool {
	return d.parent == nil && (d.reading.MIG || d.reading.PartitionsUnknown || d.reading.Time.IsZero())
}

// account updates the holders, idle time, energy and recent events of every device as of
// now, and returns the result. It is the only step that changes the accounting. If the
// devices have not been read again since the last call, energy does not increase. The
// caller holds the lock.
func (c *Collector) account(now time.Time, pods podmap.Map, podsErr error) *snapshot {
	pods = c.applyHAMi(pods, podsErr)
	if c.cfg.Fractions != nil && podsErr == nil {
		pods = pods.ApplyKAI(c.cfg.Fractions)
	}
	s := &snapshot{sampledAt: c.sampledAt(pods, podsErr), selection: c.selected.Load(), pods: pods, podsErr: podsErr, exportOwners: c.cfg.Owners, sharesOfKAI: c.cfg.Fractions != nil, callErrors: maps.Clone(c.callErrors)}
	s.claims = c.lookUpClaims(pods, podsErr)
	tracked := c.trackedInOrder()
	of := map[*trackedDevice]*deviceSnapshot{}
	for _, t := range tracked {
		d := t.snapshot(now)
		of[t] = d
		s.devices = append(s.devices, d)
		if t.parent != nil {
			d.parent = of[t.parent]
			d.parent.instances = append(d.parent.instances, d)
		}
	}
	holders := holdersByUUID(pods, s.devices)
	for i, t := range tracked {
		d := s.devices[i]
		d.allHolders, d.allocated = holders[d.device.UUID], pods.IsAllocated(d.device.Names())
		d.holders = d.allHolders
		if podsErr == nil {
			t.updateHolders(d.allHolders, now)
			c.logHolderWithoutMemory(t, d.holderWithoutMemory(pods))
		}
		d.idleAllocated = t.idleAllocated(now)
		parts, isFirst := d.gpuInstance()
		if !isFirst {
			continue
		}
		d.usage = t.attribution.update(c.cfg.Attribution, replicasByPod(pods, parts), podsErr == nil, t.reading, t.usage)
		d.jobs = t.jobs
	}
	s.limitShares(c.cfg.Labels.VirtualGPUs)
	c.addPodMeta(s)
	c.addSources(s)
	return s
}

// trackedInOrder returns the devices of every vendor in the order of their listings,
// each followed by its MIG instances.
func (c *Collector) trackedInOrder() (all []*trackedDevice) {
	for _, v := range c.vendors {
		for _, d := range v.devices {
			t := c.tracked[d.UUID]
			all = append(append(all, t), t.instances...)
		}
	}
	return all
}

// snapshot copies the state of the last reading, the counters and the events within
// their windows.
func (t *trackedDevice) snapshot(now time.Time) *deviceSnapshot {
	d := &deviceSnapshot{
		device: t.device, reading: t.reading, readDuration: t.readDuration, fresh: t.fresh, lost: t.lost, failed: t.failed, hung: t.hung, lastXID: t.lastXID,
		recentXIDs: t.recentXIDs.recent(now), recentClockEvents: t.recentClockEvents.recent(now), clockEventTotals: t.clockEvents.totals(),
		xidWindow: t.recentXIDs.window, clockEventsWindow: t.recentClockEvents.window,
	}
	for _, xid := range slices.Sorted(maps.Keys(t.xidCounts)) {
		d.xids = append(d.xids, xidCount{xid, t.xidCounts[xid]})
	}
	for f, n := range t.implausible {
		if n > 0 {
			d.implausible = append(d.implausible, implausibleCount{device.Field(f), n})
		}
	}
	return d
}

// applyHAMi corrects the holders of HAMi's devices, if the metadata of pods is known. If the
// kubelet failed, the accepted assignments stay for the next map. The caller holds the lock.
func (c *Collector) applyHAMi(pods podmap.Map, podsErr error) podmap.Map {
	if c.cfg.Pods == nil || podsErr != nil {
		return pods
	}
	pods = pods.ApplyHAMi(c.cfg.Pods.Pod, c.assigned)
	c.assigned = pods.Assigned
	return pods
}

// addPodMeta looks up the metadata of every pod that holds a device.
func (c *Collector) addPodMeta(s *snapshot) {
	if c.cfg.Pods == nil {
		return
	}
	s.apiReachable, s.podMeta = c.cfg.Pods.Reachable(), map[podName]podmap.Meta{}
	for _, d := range s.devices {
		for _, h := range d.holders {
			if meta, ok := c.cfg.Pods.Pod(h.Namespace, h.Pod); ok {
				s.podMeta[podName{h.Namespace, h.Pod}] = meta
			}
		}
	}
}

// addSources adds the services and the undescribed devices of all sources.
func (c *Collector) addSources(s *snapshot) {
	undescribed := 0
	for _, v := range c.vendors {
		undescribed += v.undescribed
		if reporter, ok := v.Source.(device.ServiceReporter); ok {
			s.services = append(s.services, reporter.Services()...)
		}
	}
	for _, v := range c.vendors {
		if _, ok := v.Source.(device.UndescribedCounter); ok && !v.at.IsZero() {
			n := float64(undescribed)
			s.undescribed = &n
		}
	}
}

// sampledAt returns the time of the oldest of the vendors' last collections and of the holders, if
// they are known. Vendors without a collection are ignored. A device counts as free by the holders,
// which can be older than the readings by the time that slow devices take: a pod that took a device
// in between is not in the snapshot.
func (c *Collector) sampledAt(pods podmap.Map, podsErr error) (oldest time.Time) {
	if podsErr == nil {
		oldest = pods.At
	}
	for _, v := range c.vendors {
		if !v.at.IsZero() && (oldest.IsZero() || v.at.Before(oldest)) {
			oldest = v.at
		}
	}
	return oldest
}

// holdersByUUID returns the containers that hold each device under any of its names.
// Devices without holders are not in the map.
func holdersByUUID(pods podmap.Map, devices []*deviceSnapshot) map[string][]podmap.Holder {
	holders := map[string][]podmap.Holder{}
	for _, d := range devices {
		uuid := d.device.UUID
		for _, name := range d.device.Names() {
			for _, h := range pods.Holders[name] {
				if !slices.Contains(holders[uuid], h) {
					holders[uuid] = append(holders[uuid], h)
				}
			}
		}
	}
	return holders
}

// podName identifies a pod that holds a device, through any of its containers.
type podName struct{ namespace, name string }

func (p podName) compare(other podName) int {
	return slices.Compare([]string{p.namespace, p.name}, []string{other.namespace, other.name})
}

// gpuInstance returns the MIG instances in the same GPU instance as d, or d alone if it
// is a whole device. DCGM's metrics are by GPU instance, so isFirst selects one of the
// compute instances to represent all.
func (d *deviceSnapshot) gpuInstance() (parts []*deviceSnapshot, isFirst bool) {
	if d.parent == nil {
		return []*deviceSnapshot{d}, true
	}
	for _, part := range d.parent.instances {
		if part.device.Instance.GI == d.device.Instance.GI {
			parts = append(parts, part)
		}
	}
	return parts, parts[0] == d
}

// wholeDevice returns the parent of a MIG instance, and d itself for a whole device.
func (d *deviceSnapshot) wholeDevice() *deviceSnapshot {
	if d.parent != nil {
		return d.parent
	}
	return d
}

// modelLabel returns the model of a device as the node labels of its vendor have it: of GPU
// feature discovery for NVIDIA, and of AMD's node labeller. For a MIG instance it contains
// the profile without characters that labels exclude: 1g.10gb+me becomes -MIG-1g.10gbme. For
// a partition of an AMD GPU it contains the partition mode.
func modelLabel(d device.Device) string {
	switch {
	case d.Vendor == device.AMD && d.Instance != nil:
		return amdModel.Replace(d.Model) + "-" + d.Instance.Profile
	case d.Vendor == device.AMD:
		return amdModel.Replace(d.Model)
	case d.Instance != nil:
		return Model(d.Model) + "-MIG-" + strings.ReplaceAll(d.Instance.Profile, "+", "")
	}
	return Model(d.Model)
}

// amdModel converts a product name to the form of the node label amd.com/gpu.product-name.
var amdModel = strings.NewReplacer(" ", "_", "(", "", ")", "")

// Model returns a product name in the form of GPU feature discovery's labels, with
// blanks replaced by -.
func Model(product string) string { return strings.Join(strings.Fields(product), "-") }
