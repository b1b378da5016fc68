package collector

import (
	"context"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// instanceLabels come first on the DCGM metrics of a MIG instance, whose UUID there
// is its parent's.
var instanceLabels = slices.Insert(slices.Clone(dcgmLabels), 5, "GPU_I_PROFILE", "GPU_I_ID")

// giProfile of the GPU instance in which a compute instance lies: 2g.20gb of 1c.2g.20gb.
func giProfile(profile string) string {
	if first, rest, ok := strings.Cut(profile, "."); ok && strings.HasSuffix(first, "c") {
		return rest
	}
	return profile
}

// modelOf a device in the form of GPU feature discovery's labels, which for an
// instance name the profile, without what no label may hold: 1g.10gb+me ends in
// -MIG-1g.10gbme.
func modelOf(d device.Device) string {
	model := Model(d.Model)
	if d.Instance != nil {
		model += "-MIG-" + strings.ReplaceAll(d.Instance.Profile, "+", "")
	}
	return model
}

// whole device that it is, or was cut off.
func (k *known) whole() *known {
	if k.parent != nil {
		return k.parent
	}
	return k
}

// tell a field in this collection. An instance has memory of its own and the state
// of its device, such as temperature and clocks, which its device does not tell once
// more where it is inParts; what the whole device uses up is not the instance's.
func (k *known) tell(f field, inParts bool) (float64, bool) {
	v, ok := k.reading.Get(f.field)
	switch {
	case !k.fresh, inParts && (ofMemory[f.field] || !additive(f)):
		return 0, false
	case ok || k.parent == nil || additive(f) || ofMemory[f.field]:
		return v, ok
	}
	return k.parent.reading.Get(f.field)
}

// ofMemory are the fields that differ between a device's instances.
var ofMemory = map[device.Field]bool{device.FBFree: true, device.FBUsed: true, device.FBReserved: true, device.FBTotal: true, device.FBUsedRatio: true}

// additive tells whether parts of a field that are attributed to several holders
// of a device must not exceed it together: what they use up, in contrast to
// temperatures, clocks, limits and faults, which every one of them sees.
func additive(f field) bool {
	switch f.field {
	case device.PowerUsage, device.FBUsed:
		return true
	case device.FBTotal, device.FBFree, device.FBReserved, device.PowerLimit:
		return false
	default:
		return slices.Contains([]string{"%", "0..1", "mJ", "B/s", "MB/s"}, f.unit)
	}
}

// sameGI are the parts of the GPU instance that an instance is one of, and for a
// whole device that alone; first is false for all but one part, since DCGM's words
// and memory are of GPU instances.
func sameGI(k *known) (parts []*known, first bool) {
	if k.parent == nil {
		return []*known{k}, true
	}
	parts = slices.DeleteFunc(slices.Clone(k.parent.parts), func(part *known) bool { return part.device.Instance.GI != k.device.Instance.GI })
	return parts, parts[0] == k
}

// holdersOf the parts, each once.
func holdersOf(parts []*known, held map[string][]podmap.Holder) (whom []podmap.Holder) {
	for _, part := range parts {
		for _, h := range held[part.device.UUID] {
			if !slices.Contains(whom, h) {
				whom = append(whom, h)
			}
		}
	}
	return whom
}

// partsOf a device are the instances that its last reading told; those that it
// tells no more are forgotten.
func (c *Collector) partsOf(k *known) []*known {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := k.parts
	k.parts = nil
	for _, d := range k.reading.Instances {
		part := c.remember(d)
		part.parent = k
		k.parts = append(k.parts, part)
	}
	c.forget(slices.DeleteFunc(old, func(part *known) bool { return slices.Contains(k.parts, part) }))
	return slices.Clone(k.parts)
}

func (c *Collector) forget(parts []*known) {
	for _, part := range parts {
		delete(c.known, part.device.UUID)
	}
}

// readInstance reads an instance whose device answers; it shares the fate of one
// that does not.
func (c *Collector) readInstance(ctx context.Context, v *vendor, k *known) {
	if k.parent.healthy() {
		c.read(ctx, v, k)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k.fresh, k.lost, k.failed = false, k.parent.lost, !k.parent.lost
}
