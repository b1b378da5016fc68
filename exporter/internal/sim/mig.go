package sim

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// instances returns the MIG instances of a device.
func (d DeviceState) instances(parent device.Device) []device.Device {
	var out []device.Device
	for _, i := range d.Instances {
		instance := parent
		instance.UUID, instance.MemoryMiB, instance.Links = i.UUID, i.MemoryMiB, nil
		instance.Instance = &device.Instance{Parent: parent.UUID, Profile: i.Profile, GI: i.GI}
		out = append(out, instance)
	}
	return out
}

// readInstance returns the memory of a MIG instance. The simulator has no other values of
// instances.
func (s *Source) readInstance(d device.Device, state DeviceState, now time.Time) (device.Reading, error) {
	if !slices.ContainsFunc(state.Instances, func(i InstanceState) bool { return i.UUID == d.UUID }) {
		return device.Reading{}, fmt.Errorf("instance %s is no longer simulated", d.UUID)
	}
	l := s.liveStateOf(d.UUID, now)
	l.advance(s.targetUtilization(d, state.Background), now)
	r := device.Reading{Time: now}
	setMemory(&r, l.utilization, float64(d.MemoryMiB))
	return r, nil
}

// h100InstanceMiB is the memory of the MIG profiles of an H100 with 80 GB.
var h100InstanceMiB = map[string]int64{"1g.10gb": 9856, "2g.20gb": 19968, "3g.40gb": 40320}

// partition enables MIG mode with an instance per profile.
func (d *DeviceState) partition(profiles ...string) {
	d.MIG, d.Instances = true, nil
	for n, profile := range profiles {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", d.UUID, profile, n))
		d.Instances = append(d.Instances, InstanceState{UUID: "MIG-" + formatUUID(sum), Profile: profile, GI: n + 1, MemoryMiB: h100InstanceMiB[profile]})
	}
}

func formatUUID(sum [32]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
