package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// getter is one call that the library may lack, and what it adds to a reading.
type getter struct {
	symbol  string
	get     get
	also    []string // symbols that it needs besides
	instead *getter  // where the library lacks one of them
}

var getters = []getter{
	{symbol: "nvmlDeviceGetClockInfo", get: number(device.SMClock, func(u *unit) (uint32, nvml.Return) { return u.GetClockInfo(nvml.CLOCK_SM) }, 1)},
	{symbol: "nvmlDeviceGetClockInfo", get: number(device.MemClock, func(u *unit) (uint32, nvml.Return) { return u.GetClockInfo(nvml.CLOCK_MEM) }, 1)},
	{symbol: "nvmlDeviceGetTemperature", get: number(device.GPUTemp, func(u *unit) (uint32, nvml.Return) { return u.GetTemperature(nvml.TEMPERATURE_GPU) }, 1)},
	{symbol: "nvmlDeviceGetTemperatureThreshold", get: number(device.SlowdownTemp, func(u *unit) (uint32, nvml.Return) {
		return u.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	}, 1)},
	{symbol: "nvmlDeviceGetMarginTemperature", get: margin},
	{symbol: "nvmlDeviceGetPowerUsage", get: number(device.PowerUsage, (*unit).GetPowerUsage, 1000)},
	{symbol: "nvmlDeviceGetEnforcedPowerLimit", get: number(device.PowerLimit, (*unit).GetEnforcedPowerLimit, 1000)},
	{symbol: "nvmlDeviceGetPowerManagementLimit", get: number(device.PowerManagementLimit, (*unit).GetPowerManagementLimit, 1000)},
	{symbol: "nvmlDeviceGetTotalEnergyConsumption", get: number(device.TotalEnergy, (*unit).GetTotalEnergyConsumption, 1)},
	{symbol: "nvmlDeviceGetPcieReplayCounter", get: number(device.PCIeReplay, (*unit).GetPcieReplayCounter, 1)},
	{symbol: "nvmlDeviceGetCurrentClocksEventReasons", get: number(device.ClockEvents, (*unit).GetCurrentClocksEventReasons, 1),
		instead: &getter{symbol: "nvmlDeviceGetCurrentClocksThrottleReasons", get: number(device.ClockEvents, (*unit).GetCurrentClocksThrottleReasons, 1)}},
	{symbol: "nvmlDeviceGetUtilizationRates", get: utilization},
	{symbol: "nvmlDeviceGetEncoderUtilization", get: encoder},
	{symbol: "nvmlDeviceGetDecoderUtilization", get: decoder},
	memoryGetter,
	{symbol: "nvmlDeviceGetRemappedRows", get: remappedRows},
	{symbol: "nvmlDeviceGetGridLicensableFeatures_v4", get: license},
	{symbol: "nvmlDeviceGetFieldValues", get: fieldValues},
	{symbol: "nvmlDeviceGetMigMode", get: mig, also: migSymbols},
	{symbol: "nvmlGpmMetricsGet", get: profile, also: gpmSymbols},
}

var memoryGetter = getter{symbol: "nvmlDeviceGetMemoryInfo_v2", get: memory, instead: &getter{symbol: "nvmlDeviceGetMemoryInfo", get: memoryV1}}

type get = func(*unit, *device.Reading) nvml.Return

func number[N uint32 | uint64 | int](f device.Field, call func(*unit) (N, nvml.Return), per float64) get {
	return func(u *unit, r *device.Reading) nvml.Return {
		v, ret := call(u)
		if ret == nvml.SUCCESS {
			r.Set(f, float64(v)/per)
		}
		return ret
	}
}

func margin(u *unit, r *device.Reading) nvml.Return {
	m, ret := u.GetMarginTemperature()
	if ret == nvml.SUCCESS {
		r.Set(device.ThermalMargin, float64(m.MarginTemperature))
	}
	return ret
}

// license of a vGPU; a device that needs none has no such status.
func license(u *unit, r *device.Reading) nvml.Return {
	l, ret := u.GetGridLicensableFeatures()
	if ret != nvml.SUCCESS {
		return ret
	}
	if l.IsGridLicenseSupported == 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	licensed := 0.0
	for _, feature := range l.GridLicensableFeatures[:min(int(l.LicensableFeaturesCount), len(l.GridLicensableFeatures))] {
		if feature.FeatureState != 0 {
			licensed = 1
		}
	}
	r.Set(device.VGPULicensed, licensed)
	return ret
}

func utilization(u *unit, r *device.Reading) nvml.Return {
	rates, ret := u.GetUtilizationRates()
	if ret == nvml.SUCCESS {
		r.Set(device.GPUUtil, float64(rates.Gpu))
		r.Set(device.MemCopyUtil, float64(rates.Memory))
	}
	return ret
}

func encoder(u *unit, r *device.Reading) nvml.Return {
	v, _, ret := u.GetEncoderUtilization()
	if ret == nvml.SUCCESS {
		r.Set(device.EncUtil, float64(v))
	}
	return ret
}

func decoder(u *unit, r *device.Reading) nvml.Return {
	v, _, ret := u.GetDecoderUtilization()
	if ret == nvml.SUCCESS {
		r.Set(device.DecUtil, float64(v))
	}
	return ret
}

func memory(u *unit, r *device.Reading) nvml.Return {
	m, ret := u.GetMemoryInfo_v2()
	if ret == nvml.SUCCESS {
		r.Set(device.FBFree, float64(m.Free>>20))
		r.Set(device.FBUsed, float64(m.Used>>20))
		r.Set(device.FBReserved, float64(m.Reserved>>20))
		r.Set(device.FBTotal, float64(m.Total>>20))
		if usable := m.Total - m.Reserved; m.Total > m.Reserved {
			r.Set(device.FBUsedRatio, float64(m.Used)/float64(usable))
		}
	}
	return ret
}

// memoryV1 is what drivers before 510 have: what is reserved counts as used.
func memoryV1(u *unit, r *device.Reading) nvml.Return {
	m, ret := u.GetMemoryInfo()
	if ret == nvml.SUCCESS {
		r.Set(device.FBFree, float64(m.Free>>20))
		r.Set(device.FBUsed, float64(m.Used>>20))
	}
	return ret
}

func remappedRows(u *unit, r *device.Reading) nvml.Return {
	correctable, uncorrectable, _, failed, ret := u.GetRemappedRows()
	if ret == nvml.SUCCESS {
		r.Set(device.CorrectableRemappedRows, float64(correctable))
		r.Set(device.UncorrectableRemappedRows, float64(uncorrectable))
		failure := 0.0
		if failed {
			failure = 1
		}
		r.Set(device.RowRemapFailure, failure)
	}
	return ret
}
