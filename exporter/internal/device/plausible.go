package device

import "math"

// limits are the smallest and largest plausible value of a field. A field without an
// entry must be at least 0, and none of the 32-bit and 64-bit patterns by which drivers mean
// "unknown".
var limits = map[Field][2]float64{
	SMClock: {0, 10_000}, MemClock: {0, 50_000},
	GPUTemp: {0, 200}, MemoryTemp: {0, 200}, SlowdownTemp: {1, 200}, ThermalMargin: {-200, 200},
	PowerUsage: {0, 10_000}, PowerLimit: {1, 10_000}, PowerManagementLimit: {1, 10_000},
	PowerMin: {0, 10_000}, PowerMax: {1, 10_000}, PowerDefault: {1, 10_000},
	GPUUtil: {0, 100}, MemCopyUtil: {0, 100}, EncUtil: {0, 100}, DecUtil: {0, 100},
	FBFree: {0, 1 << 24}, FBUsed: {0, 1 << 24}, FBReserved: {0, 1 << 24}, FBTotal: {1, 1 << 24}, FBUsedRatio: ratio,
	EngineActive: ratio, SMActive: ratio, SMOccupancy: ratio, TensorActive: ratio, DRAMActive: ratio,
	FP64Active: ratio, FP32Active: ratio, FP16Active: ratio,
	RowRemapFailure: {0, 1}, RowRemapPending: {0, 1}, VGPULicensed: {0, 1}, ComputeMode: {0, 3},
	DutyCycle: {0, 100}, MemoryBandwidthUtil: {0, 100}, TensorCoreUtil: {0, 100}, AcceleratorMemoryTotal: {1, 1 << 50},
	PCIeLinkGeneration: {1, 20}, PCIeMaxLinkGeneration: {1, 20}, PCIeLinkWidth: {1, 64}, PCIeMaxLinkWidth: {1, 64}, FanSpeed: {0, 1000}, PerformanceState: {0, 15},
	FabricStatus: {0, 4}, FabricHealth: {0, 3}, NVLinkTxRate: {0, 1e13}, NVLinkRxRate: {0, 1e13},
	NVLinkTx: {0, 1 << 72}, NVLinkRx: {0, 1 << 72}, // drivers count KiB in 64 bits
	PCIeTx: {0, 1e12}, PCIeRx: {0, 1e12}, NVLinkBandwidth: {0, 1e8},
}

// ratio allows slightly more than 1 because the driver reads the two counters of a ratio
// in different cycles.
var ratio = [2]float64{0, 1.01}

// isPlausible reports whether the field can have the value. NaN is never plausible.
func isPlausible(f Field, v float64) bool {
	limit, ok := limits[f]
	if !ok {
		return v >= 0 && v <= math.MaxInt64 && v != math.MaxUint32
	}
	return v >= limit[0] && v <= limit[1]
}
