package collector

import (
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// dcgmField is a metric of dcgm-exporter and the device field that it exports.
type dcgmField struct {
	field device.Field
	name  string
	kind  dto.MetricType
	unit  string // of the device field
	help  string
	route string // NVML function or field id that provides the value

	// Conversion to the unit of the metric, if it is not that of the device field.
	factor       float64 // 0 for no conversion
	whole        bool    // truncate to a whole number
	exportedUnit string
}

// export converts a value of the device field to the unit of the metric. DCGM reports
// memory and NVLink's bandwidth in whole numbers.
func (f dcgmField) export(v float64) float64 {
	switch {
	case f.factor == 0 && (f.unit == "MiB" || f.unit == "MB/s"):
		return math.Floor(v)
	case f.factor == 0:
		return v
	case f.whole:
		return math.Floor(v * f.factor)
	case f.factor < 1: // a division by the whole number gives the nearest value
		return v / math.Round(1/f.factor)
	}
	return v * f.factor
}

const gauge, counter = dto.MetricType_GAUGE, dto.MetricType_COUNTER

// nvlinkBandwidth is the metric whose type dcgm-exporter corrected in version 4.8.3.
const nvlinkBandwidth = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"

func newField(field device.Field, name string, kind dto.MetricType, unit, help, route string) dcgmField {
	return dcgmField{field: field, name: name, kind: kind, unit: unit, help: help, route: route}
}

// dcgmFields are the metrics of dcgm-exporter that are values of a device field.
var dcgmFields = []dcgmField{
	newField(device.SMClock, "DCGM_FI_DEV_SM_CLOCK", gauge, "MHz", "SM clock frequency (in MHz).", "nvmlDeviceGetClockInfo"),
	newField(device.MemClock, "DCGM_FI_DEV_MEM_CLOCK", gauge, "MHz", "Memory clock frequency (in MHz).", "nvmlDeviceGetClockInfo"),
	newField(device.MemoryTemp, "DCGM_FI_DEV_MEMORY_TEMP", gauge, "C", "Memory temperature (in C).", "field 82"),
	newField(device.GPUTemp, "DCGM_FI_DEV_GPU_TEMP", gauge, "C", "GPU temperature (in C).", "nvmlDeviceGetTemperature"),
	newField(device.PowerUsage, "DCGM_FI_DEV_POWER_USAGE", gauge, "W", "Power draw (in W).", "nvmlDeviceGetPowerUsage"),
	newField(device.TotalEnergy, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", counter, "mJ", "Total energy consumption since boot (in mJ).", "nvmlDeviceGetTotalEnergyConsumption"),
	newField(device.PCIeReplay, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", counter, "1", "Total number of PCIe retries.", "nvmlDeviceGetPcieReplayCounter"),
	newField(device.GPUUtil, "DCGM_FI_DEV_GPU_UTIL", gauge, "%", "GPU utilization (in %).", "nvmlDeviceGetUtilizationRates"),
	newField(device.MemCopyUtil, "DCGM_FI_DEV_MEM_COPY_UTIL", gauge, "%", "Memory utilization (in %).", "nvmlDeviceGetUtilizationRates"),
	newField(device.EncUtil, "DCGM_FI_DEV_ENC_UTIL", gauge, "%", "Encoder utilization (in %).", "nvmlDeviceGetEncoderUtilization"),
	newField(device.DecUtil, "DCGM_FI_DEV_DEC_UTIL", gauge, "%", "Decoder utilization (in %).", "nvmlDeviceGetDecoderUtilization"),
	newField(device.FBFree, "DCGM_FI_DEV_FB_FREE", gauge, "MiB", "Framebuffer memory free (in MiB).", "nvmlDeviceGetMemoryInfo_v2"),
	newField(device.FBUsed, "DCGM_FI_DEV_FB_USED", gauge, "MiB", "Framebuffer memory used (in MiB).", "nvmlDeviceGetMemoryInfo_v2"),
	newField(device.FBReserved, "DCGM_FI_DEV_FB_RESERVED", gauge, "MiB", "Framebuffer memory reserved (in MiB).", "nvmlDeviceGetMemoryInfo_v2"),
	newField(device.PowerManagementLimit, "DCGM_FI_DEV_POWER_MGMT_LIMIT", gauge, "W", "Configured power limit (in W).", "nvmlDeviceGetPowerManagementLimit"),
	newField(device.PowerMin, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", gauge, "W", "Minimum power limit that can be set (in W).", "field 187"),
	newField(device.PowerMax, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", gauge, "W", "Maximum power limit that can be set (in W).", "field 188"),
	newField(device.PowerDefault, "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", gauge, "W", "Default power limit (in W).", "field 189"),
	newField(device.PowerLimit, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", gauge, "W", "Power limit that the driver enforces from all limiters (in W).", "nvmlDeviceGetEnforcedPowerLimit"),
	newField(device.SlowdownTemp, "DCGM_FI_DEV_SLOWDOWN_TEMP", gauge, "C", "Temperature at which the hardware slows down (in C).", "nvmlDeviceGetTemperatureThreshold"),
	newField(device.ThermalMargin, "DCGM_FI_DEV_GPU_TEMP_LIMIT", gauge, "C", "Margin to the nearest slowdown temperature (in C).", "nvmlDeviceGetMarginTemperature, or slowdown temperature minus GPU temperature"),
	newField(device.ClockEvents, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", gauge, "bits", "Reasons for reduced clocks, as a bitmask.", "nvmlDeviceGetCurrentClocksEventReasons"),
	newField(device.ClockEvents, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", gauge, "bits", "Reasons for reduced clocks, as a bitmask (older name).", "nvmlDeviceGetCurrentClocksEventReasons"),
	newField(device.NVLinkBandwidth, nvlinkBandwidth, counter, "MB/s", "Bandwidth of all NVLinks in both directions (in 1000 KiB/s, as DCGM calculates it).", "fields 138 and 139, differenced"),
	newField(device.NVLinkFlitErrors, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", counter, "1", "Total number of NVLink flow-control CRC errors.", "field 38"),
	newField(device.NVLinkDataErrors, "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", counter, "1", "Total number of NVLink data CRC errors.", "field 45"),
	newField(device.NVLinkReplays, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", counter, "1", "Total number of NVLink retries.", "field 52"),
	newField(device.NVLinkRecoveries, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", counter, "1", "Total number of NVLink recoveries.", "field 59"),
	newField(device.VGPULicensed, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", gauge, "1", "Whether the vGPU is licensed.", "nvmlDeviceGetGridLicensableFeatures_v4"),
	newField(device.EngineActive, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", gauge, "0..1", "Ratio of time in which the graphics or compute engine is active.", "GPM 1"),
	newField(device.SMActive, "DCGM_FI_PROF_SM_ACTIVE", gauge, "0..1", "Ratio of cycles in which an SM has a resident warp, averaged over all SMs.", "GPM 2"),
	newField(device.SMOccupancy, "DCGM_FI_PROF_SM_OCCUPANCY", gauge, "0..1", "Ratio of resident warps to the maximum number of warps.", "GPM 3"),
	newField(device.TensorActive, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", gauge, "0..1", "Ratio of cycles in which the tensor pipes are active.", "GPM 5"),
	newField(device.DRAMActive, "DCGM_FI_PROF_DRAM_ACTIVE", gauge, "0..1", "Ratio of cycles in which the memory interface transfers data.", "GPM 10"),
	newField(device.FP64Active, "DCGM_FI_PROF_PIPE_FP64_ACTIVE", gauge, "0..1", "Ratio of cycles in which the FP64 pipes are active.", "GPM 11"),
	newField(device.FP32Active, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", gauge, "0..1", "Ratio of cycles in which the FP32 pipes are active.", "GPM 12"),
	newField(device.FP16Active, "DCGM_FI_PROF_PIPE_FP16_ACTIVE", gauge, "0..1", "Ratio of cycles in which the FP16 pipes are active.", "GPM 13"),
	newField(device.PCIeTx, "DCGM_FI_PROF_PCIE_TX_BYTES", gauge, "B/s", "PCIe transmit rate (in bytes per second).", "GPM 20, or field 197 differenced"),
	newField(device.PCIeRx, "DCGM_FI_PROF_PCIE_RX_BYTES", gauge, "B/s", "PCIe receive rate (in bytes per second).", "GPM 21, or field 198 differenced"),
	newField(device.NVLinkTxRate, "DCGM_FI_PROF_NVLINK_TX_BYTES", gauge, "B/s", "NVLink transmit rate (in bytes per second).", "GPM 61, or field 138 differenced"),
	newField(device.NVLinkRxRate, "DCGM_FI_PROF_NVLINK_RX_BYTES", gauge, "B/s", "NVLink receive rate (in bytes per second).", "GPM 60, or field 139 differenced"),
	newField(device.NVLinkCRCErrors, "DCGM_FI_DEV_NVLINK_ERROR_DL_CRC", counter, "1", "Total number of NVLink CRC errors (Hopper and newer).", "field 163"),
	newField(device.NVLinkHopperReplays, "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY", counter, "1", "Total number of NVLink replays (Hopper and newer).", "field 161"),
	newField(device.NVLinkHopperRecoveries, "DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY", counter, "1", "Total number of NVLink recoveries (Hopper and newer).", "field 162"),
	newField(device.NVLinkRecoveriesSucceeded, "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", counter, "1", "Total number of successful NVLink recoveries (Blackwell and newer).", "field 213"),
	newField(device.NVLinkRecoveriesFailed, "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", counter, "1", "Total number of failed NVLink recoveries (Blackwell and newer).", "field 214"),
	newField(device.NVLinkRecoveryEvents, "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", counter, "1", "Total number of NVLink recoveries (Blackwell and newer).", "field 215"),
	newField(device.NVLinkSymbolErrors, "DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS", counter, "1", "Total number of NVLink symbol errors (Blackwell and newer).", "field 221"),
	newField(device.NVLinkEffectiveErrors, "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS", counter, "1", "Total number of NVLink errors after correction (Blackwell and newer).", "field 219"),
	newField(device.NVLinkMalformedPackets, "DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS", counter, "1", "Total number of malformed NVLink packets (Blackwell and newer).", "field 206"),
	newField(device.NVLinkReceiveErrors, "DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS", counter, "1", "Total number of received NVLink packets with errors (Blackwell and newer).", "field 208"),
	newField(device.PCIeLinkGeneration, "DCGM_FI_DEV_PCIE_LINK_GEN", gauge, "1", "Current PCIe link generation.", "nvmlDeviceGetCurrPcieLinkGeneration"),
	newField(device.PCIeLinkWidth, "DCGM_FI_DEV_PCIE_LINK_WIDTH", gauge, "1", "Current PCIe link width (in lanes).", "nvmlDeviceGetCurrPcieLinkWidth"),
	newField(device.PCIeMaxLinkGeneration, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", gauge, "1", "Maximum PCIe link generation.", "nvmlDeviceGetMaxPcieLinkGeneration"),
	newField(device.PCIeMaxLinkWidth, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", gauge, "1", "Maximum PCIe link width (in lanes).", "nvmlDeviceGetMaxPcieLinkWidth"),
	newField(device.FanSpeed, "DCGM_FI_DEV_FAN_SPEED", gauge, "percent", "Fan speed (in % of the maximum).", "nvmlDeviceGetFanSpeed"),
	newField(device.PerformanceState, "DCGM_FI_DEV_PSTATE", gauge, "1", "Performance state, 0 (fastest) to 15.", "nvmlDeviceGetPerformanceState"),
	newField(device.FabricStatus, "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", gauge, "1", "State of the NVLink fabric: 0 not supported, 1 not started, 2 in progress, 3 completed, 4 failed.", "nvmlDeviceGetGpuFabricInfoV"),
	newField(device.FabricClique, "DCGM_FI_DEV_FABRIC_CLIQUE_ID", gauge, "1", "Id of the clique in the NVLink fabric.", "nvmlDeviceGetGpuFabricInfoV"),
	newField(device.FabricHealthMask, "DCGM_FI_DEV_FABRIC_HEALTH_MASK", gauge, "bits", "Health of the NVLink fabric, as a bitmask.", "nvmlDeviceGetGpuFabricInfoV"),
	newField(device.FabricHealth, "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", gauge, "1", "Health of the NVLink fabric: 0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity.", "nvmlDeviceGetGpuFabricInfoV"),
	newField(device.CorrectableRemappedRows, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", counter, "1", "Number of remapped rows for correctable errors.", "nvmlDeviceGetRemappedRows"),
	newField(device.UncorrectableRemappedRows, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", counter, "1", "Number of remapped rows for uncorrectable errors.", "nvmlDeviceGetRemappedRows"),
	newField(device.FBTotal, "DCGM_FI_DEV_FB_TOTAL", gauge, "MiB", "Framebuffer memory total (in MiB).", "nvmlDeviceGetMemoryInfo_v2"),
	newField(device.FBUsedRatio, "DCGM_FI_DEV_FB_USED_PERCENT", gauge, "0..1", "Ratio of used to unreserved framebuffer memory (0..1).", "nvmlDeviceGetMemoryInfo_v2"),
	newField(device.ECCSingleVolatile, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", counter, "1", "Total number of single-bit volatile ECC errors.", "field 3"),
	newField(device.ECCDoubleVolatile, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", counter, "1", "Total number of double-bit volatile ECC errors.", "field 4"),
	newField(device.ECCSingleAggregate, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", counter, "1", "Total number of single-bit persistent ECC errors.", "field 5"),
	newField(device.ECCDoubleAggregate, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", counter, "1", "Total number of double-bit persistent ECC errors.", "field 6"),
	newField(device.RetiredSingle, "DCGM_FI_DEV_RETIRED_SBE", counter, "1", "Total number of retired pages due to single-bit errors.", "field 29"),
	newField(device.RetiredDouble, "DCGM_FI_DEV_RETIRED_DBE", counter, "1", "Total number of retired pages due to double-bit errors.", "field 30"),
	newField(device.RetiredPending, "DCGM_FI_DEV_RETIRED_PENDING", gauge, "1", "Whether page retirements are pending until a reboot.", "field 31"),
	newField(device.PowerViolation, "DCGM_FI_DEV_POWER_VIOLATION", counter, "ns", "Throttling duration due to power constraints (in ns).", "field 74"),
	newField(device.ThermalViolation, "DCGM_FI_DEV_THERMAL_VIOLATION", counter, "ns", "Throttling duration due to thermal constraints (in ns).", "field 75"),
	newField(device.SyncBoostViolation, "DCGM_FI_DEV_SYNC_BOOST_VIOLATION", counter, "ns", "Throttling duration due to sync-boost constraints (in ns).", "field 76"),
	newField(device.BoardLimitViolation, "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", counter, "ns", "Throttling duration due to board limit constraints (in ns).", "field 77"),
	newField(device.LowUtilViolation, "DCGM_FI_DEV_LOW_UTIL_VIOLATION", counter, "ns", "Throttling duration due to low utilization (in ns).", "field 78"),
	newField(device.ReliabilityViolation, "DCGM_FI_DEV_RELIABILITY_VIOLATION", counter, "ns", "Throttling duration due to reliability constraints (in ns).", "field 79"),
	newField(device.RowRemapFailure, "DCGM_FI_DEV_ROW_REMAP_FAILURE", gauge, "1", "Whether remapping of rows has failed.", "nvmlDeviceGetRemappedRows"),
}

// lastXIDField is the code of the last XID of a device, which comes from events.
var lastXIDField = dcgmField{name: "DCGM_FI_DEV_XID_ERRORS", kind: gauge, unit: "1", help: "Value of the last XID error encountered.", route: "event set"}

// labelField is a field that a counter file can add as a label to every DCGM metric.
type labelField struct {
	name  string
	value func(*deviceSnapshot) string // empty if the device does not report the field
}

// labelFields are the supported label fields. The first is in dcgm-exporter's default
// counter file.
var labelFields = []labelField{
	{"DCGM_FI_DRIVER_VERSION", func(d *deviceSnapshot) string { return d.device.Driver }},
	{"DCGM_FI_NVML_VERSION", func(d *deviceSnapshot) string { return d.device.Facts.Library }},
	{"DCGM_FI_DEV_BRAND", func(d *deviceSnapshot) string { return d.device.Facts.Brand }},
	{"DCGM_FI_DEV_SERIAL", func(d *deviceSnapshot) string { return d.device.Facts.Serial }},
	{"DCGM_FI_DEV_VBIOS_VERSION", func(d *deviceSnapshot) string { return d.device.Facts.VBIOS }},
	{"DCGM_FI_DEV_INFOROM_IMAGE_VER", func(d *deviceSnapshot) string { return d.device.Facts.InfoROM }},
	{"DCGM_FI_DEV_OEM_INFOROM_VER", func(d *deviceSnapshot) string { return d.device.Facts.InfoROMOEM }},
	{"DCGM_FI_DEV_ECC_INFOROM_VER", func(d *deviceSnapshot) string { return d.device.Facts.InfoROMECC }},
	{"DCGM_FI_DEV_POWER_INFOROM_VER", func(d *deviceSnapshot) string { return d.device.Facts.InfoROMPower }},
	{"DCGM_FI_DEV_FABRIC_CLUSTER_UUID", func(d *deviceSnapshot) string { return d.wholeDevice().reading.FabricCluster }},
}

// dcgmLabelNames are the first labels of every DCGM metric, in this order. The fields of
// the counter file and the attributes follow.
var dcgmLabelNames = []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"}

// instanceLabels are the first labels of the DCGM metrics of a MIG instance. Their UUID
// is that of the device.
var instanceLabels = slices.Insert(slices.Clone(dcgmLabelNames), 5, "GPU_I_PROFILE", "GPU_I_ID")
