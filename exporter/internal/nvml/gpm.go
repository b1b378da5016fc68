package nvml

import (
	"maps"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// gpmMetrics are the metrics calculated from two GPM samples (Hopper and newer). A value is
// multiplied by scale.
var gpmMetrics = []struct {
	id    nvml.GpmMetricId
	field device.Field
	scale float64
}{
	{nvml.GPM_METRIC_GRAPHICS_UTIL, device.EngineActive, 0.01},
	{nvml.GPM_METRIC_SM_UTIL, device.SMActive, 0.01},
	{nvml.GPM_METRIC_SM_OCCUPANCY, device.SMOccupancy, 0.01},
	{nvml.GPM_METRIC_ANY_TENSOR_UTIL, device.TensorActive, 0.01},
	{nvml.GPM_METRIC_DRAM_BW_UTIL, device.DRAMActive, 0.01},
	{nvml.GPM_METRIC_FP64_UTIL, device.FP64Active, 0.01},
	{nvml.GPM_METRIC_FP32_UTIL, device.FP32Active, 0.01},
	{nvml.GPM_METRIC_FP16_UTIL, device.FP16Active, 0.01},
	{nvml.GPM_METRIC_PCIE_TX_PER_SEC, device.PCIeTx, 1 << 20},
	{nvml.GPM_METRIC_PCIE_RX_PER_SEC, device.PCIeRx, 1 << 20},
	{nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, device.NVLinkTxRate, 1 << 20},
	{nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, device.NVLinkRxRate, 1 << 20},
}

// gpmSymbols are the calls needed for GPM.
var gpmSymbols = []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleFree"}

// gpmMinInterval is the shortest interval between two samples. The device refreshes its
// counters at this interval.
const gpmMinInterval = 100 * time.Millisecond

// gpmSampler keeps the last GPM sample of a device or GPU instance. A reading takes a new
// sample and compares both, so no reading has to wait for a second sample.
type gpmSampler struct {
	supportKnown, supported bool
	last, next              nvml.GpmSample
	lastTime                time.Time                // zero before the first sample
	values                  map[device.Field]float64 // calculated from the last two samples
}

// gpuInstance identifies a GPU instance. After a reconfiguration an instance with another
// profile may have the same ID.
type gpuInstance struct {
	id      int
	profile string
}

// readGPM sets the GPM metrics since the last sample of a device. Before the second sample
// they are absent. A reading within gpmMinInterval returns the previous values.
func readGPM(h *deviceHandle, r *device.Reading) nvml.Return {
	ret := h.gpm.update(h, r.Time, h.GpmSampleGet)
	if ret == nvml.SUCCESS {
		for f, v := range h.gpm.values {
			r.Set(f, v)
		}
	}
	return ret
}

// isOfWholeDevice reports whether MIG does not partition what a field measures.
func isOfWholeDevice(f device.Field) bool {
	return slices.Contains([]device.Field{device.PCIeTx, device.PCIeRx, device.NVLinkTxRate, device.NVLinkRxRate}, f)
}

// readInstanceGPM sets the GPM metrics of a MIG instance. Compute instances of the same GPU
// instance share its samples.
func readInstanceGPM(h *deviceHandle, r *device.Reading) nvml.Return {
	h.parent.mu.Lock()
	defer h.parent.mu.Unlock()
	sampler := h.parent.instanceGPM[h.gpuInstance]
	if sampler == nil {
		sampler = &gpmSampler{}
		h.parent.instanceGPM[h.gpuInstance] = sampler
	}
	ret := sampler.update(h.parent, r.Time, func(s nvml.GpmSample) nvml.Return { return h.parent.GpmMigSampleGet(h.gpuInstance.id, s) })
	if ret == nvml.SUCCESS {
		for f, v := range sampler.values {
			if !isOfWholeDevice(f) {
				r.Set(f, v)
			}
		}
	}
	return ret
}

// freeStaleSamplers frees the samples of removed GPU instances.
func (h *deviceHandle) freeStaleSamplers() {
	current := map[gpuInstance]bool{}
	for _, instance := range h.instances {
		current[instance.gpuInstance()] = true
	}
	maps.DeleteFunc(h.instanceGPM, func(instance gpuInstance, sampler *gpmSampler) bool {
		if !current[instance] {
			sampler.free()
		}
		return !current[instance]
	})
}

// update takes a sample with take and calculates values, unless the last sample is younger
// than gpmMinInterval.
func (g *gpmSampler) update(h *deviceHandle, now time.Time, take func(nvml.GpmSample) nvml.Return) nvml.Return {
	if ret := g.prepare(h); ret != nvml.SUCCESS || now.Sub(g.lastTime) < gpmMinInterval {
		return ret
	}
	return g.sample(h, now, take)
}

// prepare checks the device's support for GPM and allocates the two samples.
func (g *gpmSampler) prepare(h *deviceHandle) nvml.Return {
	if !g.supportKnown {
		support, ret := h.GpmQueryDeviceSupport()
		if ret != nvml.SUCCESS {
			return ret
		}
		g.supportKnown, g.supported = true, support.IsSupportedDevice != 0
	}
	if !g.supported {
		return nvml.ERROR_NOT_SUPPORTED
	}
	for _, s := range []*nvml.GpmSample{&g.last, &g.next} {
		if *s != nil {
			continue
		}
		sample, ret := h.lib.GpmSampleAlloc()
		if ret != nvml.SUCCESS {
			return ret
		}
		*s = sample
	}
	return nvml.SUCCESS
}

func (g *gpmSampler) sample(h *deviceHandle, now time.Time, take func(nvml.GpmSample) nvml.Return) nvml.Return {
	g.values = map[device.Field]float64{}
	isFirst := g.lastTime.IsZero()
	g.lastTime = time.Time{}
	if ret := take(g.next); ret != nvml.SUCCESS {
		return ret
	}
	g.last, g.next, g.lastTime = g.next, g.last, now
	if isFirst {
		return nvml.SUCCESS
	}
	request := nvml.GpmMetricsGetType{NumMetrics: uint32(len(gpmMetrics)), Sample1: g.next, Sample2: g.last}
	for i, m := range gpmMetrics {
		request.Metrics[i].MetricId = uint32(m.id)
	}
	if ret := h.lib.GpmMetricsGet(&request); ret != nvml.SUCCESS {
		return ret
	}
	for i, m := range gpmMetrics {
		if result := request.Metrics[i]; nvml.Return(result.NvmlReturn) == nvml.SUCCESS {
			g.values[m.field] = result.Value * m.scale
		}
	}
	return nvml.SUCCESS
}

func (g *gpmSampler) free() {
	for _, s := range []nvml.GpmSample{g.last, g.next} {
		if s != nil {
			_ = s.Free() // fails if the driver was unloaded
		}
	}
	*g = gpmSampler{}
}
