package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// getter is one call that the library may lack, and what it adds to a reading.
type getter struct {
	symbol  string
	get     get
	instead get // where the library lacks the symbol
}

var getters = []getter{
	{symbol: "nvmlDeviceGetClockInfo", get: number(device.SMClock, func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(nvml.CLOCK_SM) }, 1)},
	{symbol: "nvmlDeviceGetClockInfo", get: number(device.MemClock, func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(nvml.CLOCK_MEM) }, 1)},
	{symbol: "nvmlDeviceGetTemperature", get: bounded(device.GPUTemp, func(d nvml.Device) (uint32, nvml.Return) { return d.GetTemperature(nvml.TEMPERATURE_GPU) }, 200)},
	{symbol: "nvmlDeviceGetPowerUsage", get: number(device.PowerUsage, nvml.Device.GetPowerUsage, 1000)},
	{symbol: "nvmlDeviceGetEnforcedPowerLimit", get: number(device.PowerLimit, nvml.Device.GetEnforcedPowerLimit, 1000)},
	{symbol: "nvmlDeviceGetTotalEnergyConsumption", get: number(device.TotalEnergy, nvml.Device.GetTotalEnergyConsumption, 1)},
	{symbol: "nvmlDeviceGetPcieReplayCounter", get: number(device.PCIeReplay, nvml.Device.GetPcieReplayCounter, 1)},
	{symbol: "nvmlDeviceGetUtilizationRates", get: utilisation},
	{symbol: "nvmlDeviceGetEncoderUtilization", get: encoder},
	{symbol: "nvmlDeviceGetDecoderUtilization", get: decoder},
	{symbol: "nvmlDeviceGetMemoryInfo_v2", get: memory, instead: memoryV1},
	{symbol: "nvmlDeviceGetRemappedRows", get: remappedRows},
	{symbol: "nvmlDeviceGetFieldValues", get: fieldValues},
}

type get = func(nvml.Device, *device.Reading) nvml.Return

func number[N uint32 | uint64 | int](f device.Field, call func(nvml.Device) (N, nvml.Return), per float64) get {
	return func(d nvml.Device, r *device.Reading) nvml.Return {
		v, ret := call(d)
		if ret == nvml.SUCCESS {
			r.Set(f, float64(v)/per)
		}
		return ret
	}
}

// bounded leaves out values above limit: drivers are known to give nonsense.
func bounded(f device.Field, call func(nvml.Device) (uint32, nvml.Return), limit uint32) get {
	return func(d nvml.Device, r *device.Reading) nvml.Return {
		v, ret := call(d)
		if ret == nvml.SUCCESS && v <= limit {
			r.Set(f, float64(v))
		}
		return ret
	}
}

func utilisation(d nvml.Device, r *device.Reading) nvml.Return {
	u, ret := d.GetUtilizationRates()
	if ret == nvml.SUCCESS {
		r.Set(device.GPUUtil, float64(u.Gpu))
		r.Set(device.MemCopyUtil, float64(u.Memory))
	}
	return ret
}

func encoder(d nvml.Device, r *device.Reading) nvml.Return {
	v, _, ret := d.GetEncoderUtilization()
	if ret == nvml.SUCCESS {
		r.Set(device.EncUtil, float64(v))
	}
	return ret
}

func decoder(d nvml.Device, r *device.Reading) nvml.Return {
	v, _, ret := d.GetDecoderUtilization()
	if ret == nvml.SUCCESS {
		r.Set(device.DecUtil, float64(v))
	}
	return ret
}

func memory(d nvml.Device, r *device.Reading) nvml.Return {
	m, ret := d.GetMemoryInfo_v2()
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
func memoryV1(d nvml.Device, r *device.Reading) nvml.Return {
	m, ret := d.GetMemoryInfo()
	if ret == nvml.SUCCESS {
		r.Set(device.FBFree, float64(m.Free>>20))
		r.Set(device.FBUsed, float64(m.Used>>20))
	}
	return ret
}

func remappedRows(d nvml.Device, r *device.Reading) nvml.Return {
	correctable, uncorrectable, _, failed, ret := d.GetRemappedRows()
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
