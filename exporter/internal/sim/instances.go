package sim

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// InstanceState of a MIG instance.
type InstanceState struct {
	UUID      string `json:"uuid"`
	Profile   string `json:"profile"`
	GI        int    `json:"gi"`
	MemoryMiB int64  `json:"memoryMiB"`
}

// checkInstances of the device at a place of the state.
func (d DeviceState) checkInstances(path string, index int) error {
	var sum int64
	for _, i := range d.Instances {
		if i.UUID == "" || i.Profile == "" || i.MemoryMiB <= 0 {
			return fmt.Errorf("%s: devices[%d].instances must each have a uuid, a profile and memoryMiB above 0", path, index)
		}
		sum += i.MemoryMiB
	}
	if sum > d.MemoryMiB {
		return fmt.Errorf("%s: devices[%d].instances have %d MiB together, the device only %d", path, index, sum, d.MemoryMiB)
	}
	return nil
}

// instances of a device, as its reading tells them.
func (d DeviceState) instances(parent device.Device) []device.Device {
	var out []device.Device
	for _, i := range d.Instances {
		part := parent
		part.UUID, part.MemoryMiB, part.Links = i.UUID, i.MemoryMiB, nil
		part.Instance = &device.Instance{Parent: parent.UUID, Profile: i.Profile, GI: i.GI}
		out = append(out, part)
	}
	return out
}

// load of a whole device, or the mean of its instances by their memory.
func (s *Source) load(d device.Device, state DeviceState) float64 {
	if len(state.Processes) > 0 {
		return state.busy()
	}
	if !state.MIG {
		return s.wanted(d, state.Background)
	}
	sum := 0.0
	for _, i := range state.instances(d) {
		sum += s.wanted(i, state.Background) * float64(i.MemoryMiB)
	}
	return sum / float64(d.MemoryMiB)
}

// wanted is the utilization of a device or instance that its holders cause.
func (s *Source) wanted(d device.Device, background float64) float64 {
	if slices.ContainsFunc(d.Names(), s.held) {
		return math.Max(background, 0.92)
	}
	return background
}

// readInstance tells an instance's memory, which is all that MIG tells of one.
func (s *Source) readInstance(d device.Device, state DeviceState, now time.Time) (device.Reading, error) {
	if !slices.ContainsFunc(state.Instances, func(i InstanceState) bool { return i.UUID == d.UUID }) {
		return device.Reading{}, fmt.Errorf("instance %s is no more", d.UUID)
	}
	l := s.liveOf(d.UUID, now)
	l.follow(s.wanted(d, state.Background), now)
	r := device.Reading{Time: now}
	setMemory(&r, l.utilization, float64(d.MemoryMiB))
	return r, nil
}

func setMemory(r *device.Reading, utilization, total float64) {
	setUsed(r, math.Round(utilization*0.8*total), total)
}

func setUsed(r *device.Reading, used, total float64) {
	reserved := math.Round(total * 0.006)
	r.Set(device.FBUsed, used)
	r.Set(device.FBReserved, reserved)
	r.Set(device.FBFree, total-used-reserved)
	r.Set(device.FBTotal, total)
	r.Set(device.FBUsedRatio, used/(total-reserved))
}

// cut a device in instances of the profiles, which are those of an H100 with 80 GB.
func (d *DeviceState) cut(profiles ...string) {
	mib := map[string]int64{"1g.10gb": 9856, "2g.20gb": 19968, "3g.40gb": 40320}
	d.MIG, d.Instances = true, nil
	for n, profile := range profiles {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", d.UUID, profile, n))
		d.Instances = append(d.Instances, InstanceState{UUID: "MIG-" + uuidOf(sum), Profile: profile, GI: n + 1, MemoryMiB: mib[profile]})
	}
}

func uuidOf(sum [32]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
