package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// getter adds the result of one library call to a reading.
type getter struct {
	symbol   string
	read     readFunc
	requires []string // further symbols used by read
	fallback *getter  // used if the library lacks one of the symbols
}

// readFunc makes a call and sets the fields of the reading. It returns the code of the call.
type readFunc = func(*deviceHandle, *device.Reading) nvml.Return

// allDeviceGetters are the calls made for every reading of a whole device.
var allDeviceGetters = []getter{
	{symbol: "nvmlDeviceGetClockInfo", read: readNumber(device.SMClock, func(h *deviceHandle) (uint32, nvml.Return) { return h.GetClockInfo(nvml.CLOCK_SM) }, 1)},
	{symbol: "nvmlDeviceGetClockInfo", read: readNumber(device.MemClock, func(h *deviceHandle) (uint32, nvml.Return) { return h.GetClockInfo(nvml.CLOCK_MEM) }, 1)},
	{symbol: "nvmlDeviceGetTemperature", read: readNumber(device.GPUTemp, func(h *deviceHandle) (uint32, nvml.Return) { return h.GetTemperature(nvml.TEMPERATURE_GPU) }, 1)},
	{symbol: "nvmlDeviceGetTemperatureThreshold", read: readNumber(device.SlowdownTemp, func(h *deviceHandle) (uint32, nvml.Return) {
		return h.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	}, 1)},
	{symbol: "nvmlDeviceGetMarginTemperature", read: readThermalMargin},
	{symbol: "nvmlDeviceGetPowerUsage", read: readNumber(device.PowerUsage, (*deviceHandle).GetPowerUsage, 1000)},
	{symbol: "nvmlDeviceGetEnforcedPowerLimit", read: readNumber(device.PowerLimit, (*deviceHandle).GetEnforcedPowerLimit, 1000)},
	{symbol: "nvmlDeviceGetPowerManagementLimit", read: readNumber(device.PowerManagementLimit, (*deviceHandle).GetPowerManagementLimit, 1000)},
	{symbol: "nvmlDeviceGetTotalEnergyConsumption", read: readNumber(device.TotalEnergy, (*deviceHandle).GetTotalEnergyConsumption, 1)},
	{symbol: "nvmlDeviceGetPcieReplayCounter", read: readNumber(device.PCIeReplay, (*deviceHandle).GetPcieReplayCounter, 1)},
	{symbol: "nvmlDeviceGetCurrentClocksEventReasons", read: readNumber(device.ClockEvents, (*deviceHandle).GetCurrentClocksEventReasons, 1),
		fallback: &getter{symbol: "nvmlDeviceGetCurrentClocksThrottleReasons", read: readNumber(device.ClockEvents, (*deviceHandle).GetCurrentClocksThrottleReasons, 1)}},
	{symbol: "nvmlDeviceGetUtilizationRates", read: readUtilization},
	{symbol: "nvmlDeviceGetEncoderUtilization", read: readEncoder},
	{symbol: "nvmlDeviceGetDecoderUtilization", read: readDecoder},
	memoryGetter,
	{symbol: "nvmlDeviceGetComputeMode", read: readComputeMode},
	{symbol: "nvmlDeviceGetRemappedRows", read: readRemappedRows},
	{symbol: "nvmlDeviceGetGridLicensableFeatures_v4", read: readLicense},
	{symbol: "nvmlDeviceGetCurrPcieLinkGeneration", read: readNumber(device.PCIeLinkGeneration, (*deviceHandle).GetCurrPcieLinkGeneration, 1)},
	{symbol: "nvmlDeviceGetCurrPcieLinkWidth", read: readNumber(device.PCIeLinkWidth, (*deviceHandle).GetCurrPcieLinkWidth, 1)},
	{symbol: "nvmlDeviceGetMaxPcieLinkGeneration", read: readNumber(device.PCIeMaxLinkGeneration, (*deviceHandle).GetMaxPcieLinkGeneration, 1)},
	{symbol: "nvmlDeviceGetMaxPcieLinkWidth", read: readNumber(device.PCIeMaxLinkWidth, (*deviceHandle).GetMaxPcieLinkWidth, 1)},
	{symbol: "nvmlDeviceGetFanSpeed", read: readNumber(device.FanSpeed, (*deviceHandle).GetFanSpeed, 1)},
	{symbol: "nvmlDeviceGetPerformanceState", read: readPerformanceState},
	{symbol: "nvmlDeviceGetGpuFabricInfoV", read: readFabric},
	{symbol: "nvmlDeviceGetFieldValues", read: readFieldValues},
	{symbol: "nvmlDeviceGetMigMode", read: readMIG, requires: migSymbols},
	{symbol: "nvmlGpmMetricsGet", read: readGPM, requires: gpmSymbols},
}

// memoryGetter also applies to MIG instances.
var memoryGetter = getter{symbol: "nvmlDeviceGetMemoryInfo_v2", read: readMemory, fallback: &getter{symbol: "nvmlDeviceGetMemoryInfo", read: readMemoryV1}}

// readNumber returns a readFunc for a call with a single number. The field is set to the
// number divided by divisor.
func readNumber[N uint32 | uint64 | int](f device.Field, call func(*deviceHandle) (N, nvml.Return), divisor float64) readFunc {
	return func(h *deviceHandle, r *device.Reading) nvml.Return {
		v, ret := call(h)
		if ret == nvml.SUCCESS {
			r.Set(f, float64(v)/divisor)
		}
		return ret
	}
}

func readComputeMode(h *deviceHandle, r *device.Reading) nvml.Return {
	mode, ret := h.GetComputeMode()
	if ret == nvml.SUCCESS {
		r.Set(device.ComputeMode, float64(mode))
	}
	return ret
}

func readThermalMargin(h *deviceHandle, r *device.Reading) nvml.Return {
	m, ret := h.GetMarginTemperature()
	if ret == nvml.SUCCESS {
		r.Set(device.ThermalMargin, float64(m.MarginTemperature))
	}
	return ret
}

func readPerformanceState(h *deviceHandle, r *device.Reading) nvml.Return {
	state, ret := h.GetPerformanceState()
	if ret == nvml.SUCCESS && state != nvml.PSTATE_UNKNOWN {
		r.Set(device.PerformanceState, float64(state))
	}
	return ret
}

// readLicense sets the license state of a vGPU. It is 0 for a device without license
// requirement, as in DCGM.
func readLicense(h *deviceHandle, r *device.Reading) nvml.Return {
	features, ret := h.GetGridLicensableFeatures()
	if ret != nvml.SUCCESS {
		return ret
	}
	licensed := 0.0
	for _, feature := range features.GridLicensableFeatures[:min(int(features.LicensableFeaturesCount), len(features.GridLicensableFeatures))] {
		if feature.FeatureState != 0 {
			licensed = 1
		}
	}
	r.Set(device.VGPULicensed, licensed)
	return ret
}

func readUtilization(h *deviceHandle, r *device.Reading) nvml.Return {
	rates, ret := h.GetUtilizationRates()
	if ret == nvml.SUCCESS {
		r.Set(device.GPUUtil, float64(rates.Gpu))
		r.Set(device.MemCopyUtil, float64(rates.Memory))
	}
	return ret
}

func readEncoder(h *deviceHandle, r *device.Reading) nvml.Return {
	v, _, ret := h.GetEncoderUtilization()
	if ret == nvml.SUCCESS {
		r.Set(device.EncUtil, float64(v))
	}
	return ret
}

func readDecoder(h *deviceHandle, r *device.Reading) nvml.Return {
	v, _, ret := h.GetDecoderUtilization()
	if ret == nvml.SUCCESS {
		r.Set(device.DecUtil, float64(v))
	}
	return ret
}

// readMemory sets the memory fields. A device that shares the memory of the CPU has none of
// its own: it reports 0 bytes, or does not support the call. Some drivers export the newer call but return an error
// from it, so an error leads to the older call, unless no program can use the device.
func readMemory(h *deviceHandle, r *device.Reading) nvml.Return {
	m, ret := h.GetMemoryInfo_v2()
	switch {
	case ret == nvml.SUCCESS && m.Total == 0:
		return nvml.ERROR_NOT_SUPPORTED
	case ret == nvml.SUCCESS:
		r.Set(device.FBFree, mebibytes(m.Free))
		r.Set(device.FBUsed, mebibytes(m.Used))
		r.Set(device.FBReserved, mebibytes(m.Reserved))
		r.Set(device.FBTotal, mebibytes(m.Total))
		if usable := m.Total - m.Reserved; m.Total > m.Reserved {
			r.Set(device.FBUsedRatio, float64(m.Used)/float64(usable))
		}
	case !isUnusable(ret):
		return readMemoryV1(h, r)
	}
	return ret
}

// readMemoryV1 is the fallback for drivers before 510. The used memory includes the reserved
// memory.
func readMemoryV1(h *deviceHandle, r *device.Reading) nvml.Return {
	m, ret := h.GetMemoryInfo()
	if ret == nvml.SUCCESS && m.Total == 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	if ret == nvml.SUCCESS {
		r.Set(device.FBFree, mebibytes(m.Free))
		r.Set(device.FBUsed, mebibytes(m.Used))
		r.Set(device.FBTotal, mebibytes(m.Total))
	}
	return ret
}

// mebibytes converts bytes to MiB without a loss.
func mebibytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

func readRemappedRows(h *deviceHandle, r *device.Reading) nvml.Return {
	correctable, uncorrectable, pending, failed, ret := h.GetRemappedRows()
	if ret == nvml.SUCCESS {
		r.Set(device.CorrectableRemappedRows, float64(correctable))
		r.Set(device.UncorrectableRemappedRows, float64(uncorrectable))
		r.Set(device.RowRemapPending, boolValue(pending))
		r.Set(device.RowRemapFailure, boolValue(failed))
	}
	return ret
}

// boolValue returns 1 for true and 0 for false.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
