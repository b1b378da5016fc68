package nvml

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// migSymbols are all needed, besides the one for the mode.
var migSymbols = []string{"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetAttributes_v2",
	"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"}

// placementSymbols tell where on the device an instance lies, for claims name it by that.
var placementSymbols = []string{"nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"}

// part is an instance that MIG has cut off a unit.
type part struct {
	handle    nvml.Device
	uuid      string
	memoryMiB int64
	device.Instance
}

// mig tells whether a device is in MIG mode, and which instances there are now.
// They come and go while the driver runs, and one may follow another under the same
// UUID, so all are asked anew. An instance that goes away meanwhile is left out.
func mig(u *unit, r *device.Reading) nvml.Return {
	u.parts = nil
	defer u.keepCuts()
	mode, _, ret := u.GetMigMode()
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return ret
	}
	r.MIG = true
	places, ret := u.GetMaxMigDeviceCount()
	for i := 0; ret == nvml.SUCCESS && i < places; i++ {
		handle, ret := u.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // nothing is at this place
		}
		if p, err := u.describePart(handle); err == nil {
			u.parts = append(u.parts, p)
		}
		u.beat()
	}
	return ret
}

func (u *unit) describePart(handle nvml.Device) (part, error) {
	p := part{handle: handle}
	name, named := handle.GetName()
	attributes, described := handle.GetAttributes()
	var identified, inGI, inCI nvml.Return
	p.uuid, identified = handle.GetUUID()
	p.GI, inGI = handle.GetGpuInstanceId()
	p.CI, inCI = handle.GetComputeInstanceId()
	for _, ret := range []nvml.Return{named, described, identified, inGI, inCI} {
		if ret != nvml.SUCCESS {
			return p, errors.New(message(ret))
		}
	}
	p.memoryMiB = int64(attributes.MemorySizeMB)
	var ok bool
	if _, p.Profile, ok = strings.Cut(name, " MIG "); !ok {
		p.Profile = profileOf(attributes, u.memoryMiB)
	}
	if u.placed {
		p.Placement = u.placement(p.GI)
	}
	return p, nil
}

// profileOf an instance, where the driver does not name it: its slices, and its
// memory in eighths of the device's.
func profileOf(a nvml.DeviceAttributes, deviceMiB int64) string {
	eighths := math.Ceil(8 * float64(a.MemorySizeMB) / float64(deviceMiB))
	gb := math.Round(eighths / 8 * math.Ceil(float64(deviceMiB)/1024))
	profile := fmt.Sprintf("%dg.%.0fgb", a.GpuInstanceSliceCount, gb)
	if a.ComputeInstanceSliceCount < a.GpuInstanceSliceCount {
		profile = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, profile)
	}
	return profile
}

// placement of a GPU instance as claims write it; "" where we may not see it.
func (u *unit) placement(gi int) string {
	instance, ret := u.GetGpuInstanceById(gi)
	if ret != nvml.SUCCESS {
		return ""
	}
	info, ret := instance.GetInfo()
	if ret != nvml.SUCCESS {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d", info.ProfileId, info.Placement.Start, info.Placement.Size)
}

// adopt the instances that a reading of their device found, so that they can be
// read, and lists them in the reading.
func (s *Source) adopt(u *unit, d device.Device, r *device.Reading) {
	u.mu.Lock()
	parts := u.parts
	u.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[d.UUID] != u {
		return // of a session that is over
	}
	maps.DeleteFunc(s.units, func(_ string, other *unit) bool { return other.parent == u })
	for _, p := range parts {
		p.Parent = d.UUID
		instance := d
		instance.UUID, instance.MemoryMiB, instance.Links, instance.Instance = p.uuid, p.memoryMiB, nil, &p.Instance
		r.Instances = append(r.Instances, instance)
		s.units[p.uuid] = &unit{Device: p.handle, lib: s.lib, parent: u, cut: p.cut()}
	}
}

// cut that the part is one of.
func (p part) cut() cut {
	_, profile, ok := strings.Cut(p.Profile, "c.")
	if !ok {
		profile = p.Profile
	}
	return cut{p.GI, profile}
}

// ofInstance are the getters that an instance answers: its memory, and what its
// GPU instance's monitors tell.
var ofInstance = []getter{memoryGetter, {symbol: "nvmlGpmMigSampleGet", get: profileInstance, also: gpmSymbols}}
