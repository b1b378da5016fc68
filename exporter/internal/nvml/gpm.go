package nvml

import (
	"maps"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// gpmMetrics are what two samples of a device's performance monitors tell
// (Hopper and newer); per is what a value is multiplied by.
var gpmMetrics = []struct {
	id    nvml.GpmMetricId
	field device.Field
	per   float64
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
}

// gpmSymbols are all needed for them.
var gpmSymbols = []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleFree"}

// gpmApart is the least time between two samples: the device takes them no faster.
const gpmApart = 100 * time.Millisecond

// gpm keeps the last sample of a device, or of a GPU instance of it, so that a reading takes one and never
// waits for a second.
type gpm struct {
	asked, supported bool
	last, next       nvml.GpmSample
	at               time.Time                // of last; zero where there is none
	values           map[device.Field]float64 // of the last two samples
}

// profile takes a sample and tells what happened since the last one. Before the
// second sample there is nothing to tell; a reading too soon after another tells
// the same again.
func profile(u *unit, r *device.Reading) nvml.Return {
	ret := u.gpm.update(u, r.Time, u.GpmSampleGet)
	if ret == nvml.SUCCESS {
		for f, v := range u.gpm.values {
			r.Set(f, v)
		}
	}
	return ret
}

// cut is a GPU instance: another profile may follow under its id.
type cut struct {
	gi      int
	profile string
}

// profileInstance is the same for the GPU instance that an instance is a part of, by
// way of the device's handle; several parts share its samples. PCIe is not divided.
func profileInstance(u *unit, r *device.Reading) nvml.Return {
	u.parent.mu.Lock()
	defer u.parent.mu.Unlock()
	g := u.parent.cuts[u.cut]
	if g == nil {
		g = &gpm{}
		u.parent.cuts[u.cut] = g
	}
	ret := g.update(u.parent, r.Time, func(s nvml.GpmSample) nvml.Return { return u.parent.GpmMigSampleGet(u.cut.gi, s) })
	if ret == nvml.SUCCESS {
		for f, v := range g.values {
			if f != device.PCIeTx && f != device.PCIeRx {
				r.Set(f, v)
			}
		}
	}
	return ret
}

// keepCuts gives back the samples of GPU instances that there are no more.
func (u *unit) keepCuts() {
	there := map[cut]bool{}
	for _, p := range u.parts {
		there[p.cut()] = true
	}
	maps.DeleteFunc(u.cuts, func(c cut, g *gpm) bool {
		if !there[c] {
			g.free()
		}
		return !there[c]
	})
}

func (g *gpm) update(u *unit, now time.Time, take func(nvml.GpmSample) nvml.Return) nvml.Return {
	if ret := g.prepare(u); ret != nvml.SUCCESS || now.Sub(g.at) < gpmApart {
		return ret
	}
	return g.sample(u, now, take)
}

func (g *gpm) prepare(u *unit) nvml.Return {
	if !g.asked {
		support, ret := u.GpmQueryDeviceSupport()
		if ret != nvml.SUCCESS {
			return ret
		}
		g.asked, g.supported = true, support.IsSupportedDevice != 0
	}
	if !g.supported {
		return nvml.ERROR_NOT_SUPPORTED
	}
	for _, s := range []*nvml.GpmSample{&g.last, &g.next} {
		if *s != nil {
			continue
		}
		sample, ret := u.lib.GpmSampleAlloc()
		if ret != nvml.SUCCESS {
			return ret
		}
		*s = sample
	}
	return nvml.SUCCESS
}

func (g *gpm) sample(u *unit, now time.Time, take func(nvml.GpmSample) nvml.Return) nvml.Return {
	g.values = map[device.Field]float64{}
	first := g.at.IsZero()
	g.at = time.Time{}
	if ret := take(g.next); ret != nvml.SUCCESS {
		return ret
	}
	g.last, g.next, g.at = g.next, g.last, now
	if first {
		return nvml.SUCCESS
	}
	question := nvml.GpmMetricsGetType{NumMetrics: uint32(len(gpmMetrics)), Sample1: g.next, Sample2: g.last}
	for i, m := range gpmMetrics {
		question.Metrics[i].MetricId = uint32(m.id)
	}
	if ret := u.lib.GpmMetricsGet(&question); ret != nvml.SUCCESS {
		return ret
	}
	for i, m := range gpmMetrics {
		if told := question.Metrics[i]; nvml.Return(told.NvmlReturn) == nvml.SUCCESS {
			g.values[m.field] = told.Value * m.per
		}
	}
	return nvml.SUCCESS
}

// free gives the samples back.
func (g *gpm) free() {
	for _, s := range []nvml.GpmSample{g.last, g.next} {
		if s != nil {
			_ = s.Free() // of a driver that may be gone
		}
	}
	*g = gpm{}
}
