package nvml

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// migSymbols are the calls needed for MIG instances, apart from nvmlDeviceGetMigMode.
var migSymbols = []string{"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetAttributes_v2",
	"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"}

// placementSymbols are the calls needed for the placement of an instance on the device.
// Resource claims name an instance by its placement.
var placementSymbols = []string{"nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"}

// allInstanceGetters are the calls made for a MIG instance: its memory and the GPM metrics of
// its GPU instance.
var allInstanceGetters = []getter{memoryGetter, {symbol: "nvmlGpmMigSampleGet", read: readInstanceGPM, requires: gpmSymbols}}

// migInstance is a MIG instance found by a reading of its device.
type migInstance struct {
	handle    nvml.Device
	uuid      string
	memoryMiB int64
	device.Instance
}

// gpuInstance returns the key of the GPU instance. The profile of a compute instance such as
// 1c.2g.20gb ends with the profile of its GPU instance.
func (m migInstance) gpuInstance() gpuInstance {
	_, profile, ok := strings.Cut(m.Profile, "c.")
	if !ok {
		profile = m.Profile
	}
	return gpuInstance{m.GI, profile}
}

// readMIG sets the MIG mode of a device and finds its instances. Every reading describes all
// instances again: they change while the driver runs, and a new instance may have the UUID of
// a removed instance.
func readMIG(h *deviceHandle, r *device.Reading) nvml.Return {
	h.instances, h.instanceErr = nil, nil
	defer h.freeStaleSamplers()
	mode, _, ret := h.GetMigMode()
	r.PartitionsUnknown = !slices.Contains([]nvml.Return{nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND}, ret)
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return ret
	}
	r.MIG = true
	placement := device.Call{Name: placementSymbols[0]}
	defer func() {
		if h.hasPlacement && len(h.instances) > 0 {
			r.Calls = append(r.Calls, placement)
		}
	}()
	slots, ret := h.GetMaxMigDeviceCount()
	for i := 0; ret == nvml.SUCCESS && i < slots; i++ {
		handle, failure := h.GetMigDeviceHandleByIndex(i)
		if failure == nvml.SUCCESS {
			failure = h.addInstance(handle, &placement)
		}
		h.beat()
		if isUnusable(failure) {
			return failure
		}
		if failure != nvml.SUCCESS && !isAbsent(failure) {
			h.instanceErr = fmt.Errorf("instance %d: %s", i, message(failure))
		}
	}
	return ret
}

// isAbsent reports whether ret means an empty slot or an instance removed in the meantime.
func isAbsent(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT
}

// addInstance describes a MIG instance and adds it to h.instances. It returns the code of a call that
// failed. An instance is also listed without its placement; placement has the error then.
func (h *deviceHandle) addInstance(handle nvml.Device, placement *device.Call) nvml.Return {
	m := migInstance{handle: handle}
	var uuidRet, giRet, ciRet nvml.Return
	name, nameRet := handle.GetName()
	attributes, attributesRet := handle.GetAttributes()
	m.uuid, uuidRet = handle.GetUUID()
	m.GI, giRet = handle.GetGpuInstanceId()
	m.CI, ciRet = handle.GetComputeInstanceId()
	for _, ret := range []nvml.Return{nameRet, attributesRet, uuidRet, giRet, ciRet} {
		if ret != nvml.SUCCESS {
			return ret
		}
	}
	m.memoryMiB = int64(attributes.MemorySizeMB)
	var ok bool
	if _, m.Profile, ok = strings.Cut(name, " MIG "); !ok {
		m.Profile = profileName(attributes, h.memoryMiB)
	}
	if h.hasPlacement {
		var ret nvml.Return
		start := time.Now()
		m.Placement, ret = h.placement(m.GI)
		placement.Took = max(placement.Took, time.Since(start))
		if isUnusable(ret) {
			return ret
		}
		if err := callError(ret); err != nil && !isAbsent(ret) {
			placement.Err = err
		}
	}
	h.instances = append(h.instances, m)
	return nvml.SUCCESS
}

// profileName returns the profile of an instance without a profile in its name. It consists
// of the slices and the memory, which is rounded up to eighths of the device memory, or to
// GiB if the driver does not report the device memory.
func profileName(a nvml.DeviceAttributes, deviceMiB int64) string {
	gb := math.Ceil(float64(a.MemorySizeMB) / 1024)
	if deviceMiB > 0 {
		eighths := math.Ceil(8 * float64(a.MemorySizeMB) / float64(deviceMiB))
		gb = math.Round(eighths / 8 * math.Ceil(float64(deviceMiB)/1024))
	}
	profile := fmt.Sprintf("%dg.%.0fgb", a.GpuInstanceSliceCount, gb)
	if a.ComputeInstanceSliceCount < a.GpuInstanceSliceCount {
		profile = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, profile)
	}
	return profile
}

// placement returns the placement of a GPU instance in the notation of resource claims:
// PROFILE-START. It is empty if a call fails: the driver usually denies access without root.
func (h *deviceHandle) placement(gi int) (string, nvml.Return) {
	instance, ret := h.GetGpuInstanceById(gi)
	if ret != nvml.SUCCESS {
		return "", ret
	}
	info, ret := instance.GetInfo()
	if ret != nvml.SUCCESS {
		return "", ret
	}
	return fmt.Sprintf("%d-%d", info.ProfileId, info.Placement.Start), ret
}

// addInstances adds the MIG instances found by a reading of d to the reading, and opens their
// handles for Read.
func (s *Source) addInstances(h *deviceHandle, d device.Device, r *device.Reading) {
	h.mu.Lock()
	instances, instanceErr := h.instances, h.instanceErr
	h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles[d.UUID] != h {
		return // the library was loaded again during the reading
	}
	s.logInstanceError(h, d, instanceErr)
	maps.DeleteFunc(s.handles, func(_ string, other *deviceHandle) bool { return other.parent == h })
	for _, m := range instances {
		m.Parent = d.UUID
		instance := d
		instance.UUID, instance.MemoryMiB, instance.Links, instance.Instance = m.uuid, m.memoryMiB, nil, &m.Instance
		r.Instances = append(r.Instances, instance)
		s.handles[m.uuid] = &deviceHandle{Device: m.handle, lib: s.lib, parent: h, gpuInstance: m.gpuInstance()}
	}
}

// logInstanceError logs an error of reading MIG instances when it first occurs.
func (s *Source) logInstanceError(h *deviceHandle, d device.Device, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != h.loggedInstanceErr {
		s.log.Warn("reading a MIG instance failed; it is not exported", "uuid", d.UUID, "err", text)
	}
	h.loggedInstanceErr = text
}
