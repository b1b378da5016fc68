package collector

import (
	"fmt"
	"io"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// field is one row of the one table of device metrics: what a device tells, and
// what dcgm-exporter calls it.
type field struct {
	field device.Field
	name  string
	kind  dto.MetricType
	unit  string
	help  string
	route string // where NVML gives it
}

const gauge, counter = dto.MetricType_GAUGE, dto.MetricType_COUNTER

var fields = []field{
	{device.SMClock, "DCGM_FI_DEV_SM_CLOCK", gauge, "MHz", "SM clock frequency (in MHz).", "nvmlDeviceGetClockInfo"},
	{device.MemClock, "DCGM_FI_DEV_MEM_CLOCK", gauge, "MHz", "Memory clock frequency (in MHz).", "nvmlDeviceGetClockInfo"},
	{device.MemoryTemp, "DCGM_FI_DEV_MEMORY_TEMP", gauge, "C", "Memory temperature (in C).", "field 82"},
	{device.GPUTemp, "DCGM_FI_DEV_GPU_TEMP", gauge, "C", "GPU temperature (in C).", "nvmlDeviceGetTemperature"},
	{device.PowerUsage, "DCGM_FI_DEV_POWER_USAGE", gauge, "W", "Power draw (in W).", "nvmlDeviceGetPowerUsage"},
	{device.TotalEnergy, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", counter, "mJ", "Total energy consumption since boot (in mJ).", "nvmlDeviceGetTotalEnergyConsumption"},
	{device.PCIeReplay, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", counter, "1", "Total number of PCIe retries.", "nvmlDeviceGetPcieReplayCounter"},
	{device.GPUUtil, "DCGM_FI_DEV_GPU_UTIL", gauge, "%", "GPU utilization (in %).", "nvmlDeviceGetUtilizationRates"},
	{device.MemCopyUtil, "DCGM_FI_DEV_MEM_COPY_UTIL", gauge, "%", "Memory utilization (in %).", "nvmlDeviceGetUtilizationRates"},
	{device.EncUtil, "DCGM_FI_DEV_ENC_UTIL", gauge, "%", "Encoder utilization (in %).", "nvmlDeviceGetEncoderUtilization"},
	{device.DecUtil, "DCGM_FI_DEV_DEC_UTIL", gauge, "%", "Decoder utilization (in %).", "nvmlDeviceGetDecoderUtilization"},
	{device.FBFree, "DCGM_FI_DEV_FB_FREE", gauge, "MiB", "Framebuffer memory free (in MiB).", "nvmlDeviceGetMemoryInfo_v2"},
	{device.FBUsed, "DCGM_FI_DEV_FB_USED", gauge, "MiB", "Framebuffer memory used (in MiB).", "nvmlDeviceGetMemoryInfo_v2"},
	{device.FBReserved, "DCGM_FI_DEV_FB_RESERVED", gauge, "MiB", "Framebuffer memory reserved (in MiB).", "nvmlDeviceGetMemoryInfo_v2"},
	{device.PowerManagementLimit, "DCGM_FI_DEV_POWER_MGMT_LIMIT", gauge, "W", "Power limit that is set (in W).", "nvmlDeviceGetPowerManagementLimit"},
	{device.PowerMin, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", gauge, "W", "Least power limit that can be set (in W).", "field 187"},
	{device.PowerMax, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", gauge, "W", "Greatest power limit that can be set (in W).", "field 188"},
	{device.PowerDefault, "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", gauge, "W", "Default power limit (in W).", "field 189"},
	{device.PowerLimit, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", gauge, "W", "Power limit that the driver enforces, all limiters counted (in W).", "nvmlDeviceGetEnforcedPowerLimit"},
	{device.SlowdownTemp, "DCGM_FI_DEV_SLOWDOWN_TEMP", gauge, "C", "Temperature at which the hardware slows down (in C).", "nvmlDeviceGetTemperatureThreshold"},
	{device.ThermalMargin, "DCGM_FI_DEV_GPU_TEMP_LIMIT", gauge, "C", "Degrees left until the nearest slowdown (in C).", "nvmlDeviceGetMarginTemperature, or slowdown temperature less GPU temperature"},
	{device.ClockEvents, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", gauge, "bits", "Why clocks are held down, as a bitmask.", "nvmlDeviceGetCurrentClocksEventReasons"},
	{device.ClockEvents, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", gauge, "bits", "Why clocks are held down, as a bitmask; the older name.", "nvmlDeviceGetCurrentClocksEventReasons"},
	{device.NVLinkBandwidth, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", counter, "MB/s", "Data over all NVLinks, both ways (in MB/s, although it is typed as a counter).", "fields 138 and 139, differenced"},
	{device.NVLinkFlitErrors, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", counter, "1", "CRC errors of NVLink flow control.", "field 38"},
	{device.NVLinkDataErrors, "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", counter, "1", "CRC errors of NVLink data.", "field 45"},
	{device.NVLinkReplays, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", counter, "1", "Retries over NVLink.", "field 52"},
	{device.NVLinkRecoveries, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", counter, "1", "Recoveries of NVLink.", "field 59"},
	{device.VGPULicensed, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", gauge, "1", "Whether the vGPU has its license.", "nvmlDeviceGetGridLicensableFeatures_v4"},
	{device.EngineActive, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", gauge, "0..1", "Part of the time that the graphics or compute engine is active.", "GPM 1"},
	{device.SMActive, "DCGM_FI_PROF_SM_ACTIVE", gauge, "0..1", "Part of the cycles in which an SM has a warp, averaged over the SMs.", "GPM 2"},
	{device.SMOccupancy, "DCGM_FI_PROF_SM_OCCUPANCY", gauge, "0..1", "Resident warps, of those that fit.", "GPM 3"},
	{device.TensorActive, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", gauge, "0..1", "Part of the cycles in which the tensor pipes are active.", "GPM 5"},
	{device.DRAMActive, "DCGM_FI_PROF_DRAM_ACTIVE", gauge, "0..1", "Part of the cycles in which the memory sends or receives.", "GPM 10"},
	{device.FP64Active, "DCGM_FI_PROF_PIPE_FP64_ACTIVE", gauge, "0..1", "Part of the cycles in which the FP64 pipes are active.", "GPM 11"},
	{device.FP32Active, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", gauge, "0..1", "Part of the cycles in which the FP32 pipes are active.", "GPM 12"},
	{device.FP16Active, "DCGM_FI_PROF_PIPE_FP16_ACTIVE", gauge, "0..1", "Part of the cycles in which the FP16 pipes are active.", "GPM 13"},
	{device.PCIeTx, "DCGM_FI_PROF_PCIE_TX_BYTES", gauge, "B/s", "Bytes sent over PCIe each second.", "GPM 20, or field 197 differenced"},
	{device.PCIeRx, "DCGM_FI_PROF_PCIE_RX_BYTES", gauge, "B/s", "Bytes received over PCIe each second.", "GPM 21, or field 198 differenced"},
	{device.CorrectableRemappedRows, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", counter, "1", "Number of remapped rows for correctable errors.", "nvmlDeviceGetRemappedRows"},
	{device.UncorrectableRemappedRows, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", counter, "1", "Number of remapped rows for uncorrectable errors.", "nvmlDeviceGetRemappedRows"},
	{device.FBTotal, "DCGM_FI_DEV_FB_TOTAL", gauge, "MiB", "Framebuffer memory total (in MiB).", "nvmlDeviceGetMemoryInfo_v2"},
	{device.FBUsedRatio, "DCGM_FI_DEV_FB_USED_PERCENT", gauge, "0..1", "Framebuffer memory used, of what is not reserved (0..1).", "nvmlDeviceGetMemoryInfo_v2"},
	{device.ECCSingleVolatile, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", counter, "1", "Total number of single-bit volatile ECC errors.", "field 3"},
	{device.ECCDoubleVolatile, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", counter, "1", "Total number of double-bit volatile ECC errors.", "field 4"},
	{device.ECCSingleAggregate, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", counter, "1", "Total number of single-bit persistent ECC errors.", "field 5"},
	{device.ECCDoubleAggregate, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", counter, "1", "Total number of double-bit persistent ECC errors.", "field 6"},
	{device.RetiredSingle, "DCGM_FI_DEV_RETIRED_SBE", counter, "1", "Total number of retired pages due to single-bit errors.", "field 29"},
	{device.RetiredDouble, "DCGM_FI_DEV_RETIRED_DBE", counter, "1", "Total number of retired pages due to double-bit errors.", "field 30"},
	{device.RetiredPending, "DCGM_FI_DEV_RETIRED_PENDING", gauge, "1", "Whether pages wait for a reboot to be retired.", "field 31"},
	{device.PowerViolation, "DCGM_FI_DEV_POWER_VIOLATION", counter, "ns", "Throttling duration due to power constraints (in ns).", "field 74"},
	{device.ThermalViolation, "DCGM_FI_DEV_THERMAL_VIOLATION", counter, "ns", "Throttling duration due to thermal constraints (in ns).", "field 75"},
	{device.SyncBoostViolation, "DCGM_FI_DEV_SYNC_BOOST_VIOLATION", counter, "ns", "Throttling duration due to sync-boost constraints (in ns).", "field 76"},
	{device.BoardLimitViolation, "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", counter, "ns", "Throttling duration due to board limit constraints (in ns).", "field 77"},
	{device.LowUtilViolation, "DCGM_FI_DEV_LOW_UTIL_VIOLATION", counter, "ns", "Throttling duration due to low utilization (in ns).", "field 78"},
	{device.ReliabilityViolation, "DCGM_FI_DEV_RELIABILITY_VIOLATION", counter, "ns", "Throttling duration due to reliability constraints (in ns).", "field 79"},
	{device.RowRemapFailure, "DCGM_FI_DEV_ROW_REMAP_FAILURE", gauge, "1", "Whether remapping of rows has failed.", "nvmlDeviceGetRemappedRows"},
}

// own is a metric that only Plimsoll has.
type own struct {
	name   string
	kind   dto.MetricType
	labels []string
	help   string
}

var (
	deviceLabels = []string{"node", "uuid", "gpu", "model"}
	shareLabels  = append(deviceLabels[:4:4], "namespace", "pod", "attribution")
)

var (
	nodeDevices    = own{"plimsoll_node_devices", gauge, []string{"node", "resource", "model", "state"}, "Devices of the node by state: allocatable, allocated, unhealthy, and free (allocatable, not allocated, healthy, whole)."}
	largestFree    = own{"plimsoll_node_largest_free_group", gauge, []string{"node", "resource", "model"}, "Size of the largest group of free devices that NVLink connects; absent where no device has NVLink."}
	freeSlices     = own{"plimsoll_node_free_mig_instances", gauge, []string{"node", "model", "profile"}, "Free MIG instances by the model that they are cut off and their profile; 0 where all there are of it are taken."}
	deviceLost     = own{"plimsoll_device_lost", gauge, deviceLabels, "1 when the device fell off the bus."}
	deviceHung     = own{"plimsoll_device_hung", gauge, deviceLabels, "1 when a call to the device is past its deadline."}
	deviceFailed   = own{"plimsoll_device_failed", gauge, deviceLabels, "1 when the device answers with errors, as one that needs a reset does."}
	lastSample     = own{"plimsoll_device_last_sample_timestamp_seconds", gauge, deviceLabels, "Unix time of the device's last successful reading."}
	lastCollection = own{"plimsoll_exporter_last_collection_timestamp_seconds", gauge, []string{"node"}, "Unix time of the last collection that listed the devices."}
	idleAllocated  = own{"plimsoll_device_idle_allocated_seconds", gauge, deviceLabels, "Seconds for which the device has been allocated with less than 1% utilization."}
	ownerInfo      = own{"plimsoll_device_owner_info", gauge, append(deviceLabels, "namespace", "pod", "container"), "1 for each container that holds the device."}
	xidTotal       = own{"plimsoll_xid_total", counter, append(deviceLabels, "xid", "severity"), "XID events since the exporter started."}
	throttled      = own{"plimsoll_device_throttled_seconds_total", counter, append(deviceLabels, "reason"), "Seconds for which the device's clocks have been held down, by reason, since the driver was loaded."}
	linkBytes      = own{"plimsoll_device_nvlink_bytes_total", counter, append(deviceLabels, "direction"), "Bytes of data over all of the device's NVLinks since the driver was loaded."}
	powerRoom      = own{"plimsoll_device_power_headroom_watts", gauge, deviceLabels, "Watts between what the device draws and its enforced limit."}
	pcieBytes      = own{"plimsoll_device_pcie_bytes_total", counter, append(deviceLabels, "direction"), "Bytes over PCIe since the driver was loaded."}
	memoryRoom     = own{"plimsoll_device_memory_headroom_bytes", gauge, deviceLabels, "Bytes of the device's memory that are free."}
	thermalRoom    = own{"plimsoll_device_thermal_headroom_celsius", gauge, deviceLabels, "Degrees between the device's temperature and the nearest slowdown; below 0 it is slowed down."}
	bogusValues    = own{"plimsoll_exporter_bogus_values_total", counter, append(deviceLabels, "field"), "Values that can't be, such as 1000 degrees; they are left out."}
	podMemory      = own{"plimsoll_pod_device_memory_used_bytes", gauge, shareLabels, "The pod's share of the device's memory that is used. Shares of a device never exceed it; attribution tells how they were found: device (the pod alone holds it), split (evenly, by replicas), process (by what its processes use)."}
	podUtilization = own{"plimsoll_pod_device_utilization_ratio", gauge, shareLabels, "The pod's share of the time for which the device is busy, 0..1 of the device; absent on a MIG instance."}
	podPower       = own{"plimsoll_pod_device_power_watts", gauge, shareLabels, "The pod's share of what the device draws; absent on a MIG instance."}
	podEnergy      = own{"plimsoll_pod_device_energy_joules_total", counter, shareLabels, "The pod's share of the energy that the device took since the exporter first saw the pod hold it."}
	strayProcesses = own{"plimsoll_exporter_unattributed_processes", gauge, deviceLabels, "Processes on the device that are in no known pod; with --attribution=process."}
	podOwner       = own{"plimsoll_pod_owner_info", gauge, []string{"node", "namespace", "pod", "pod_uid", "owner_kind", "owner_name"}, "1 for each pod that holds a device: the controller at the top of its owners (Job, JobSet, RayJob, PyTorchJob and so on), or Pod and its own name; with --kubernetes-pod-owners."}
	apiReachable   = own{"plimsoll_exporter_api_server_reachable", gauge, []string{"node"}, "Whether the API server answered when it was last asked of the node's pods; 0 while what was known of them is served. Absent where it is not asked."}
	xidErrors      = own{"DCGM_FI_DEV_XID_ERRORS", gauge, nil, "Value of the last XID error encountered."}
	unsupported    = own{"plimsoll_exporter_unsupported_field", gauge, []string{"node", "field"}, "1 for each field of the counter file that this exporter can't give."}
	mappedDevices  = own{"plimsoll_exporter_mapped_devices", gauge, []string{"node"}, "Devices that the kubelet's PodResources name."}
	unmapped       = own{"plimsoll_exporter_unmapped_devices", gauge, []string{"node", "reason"}, "Devices whose holder can't be told, by reason."}
	undescribed    = own{"plimsoll_exporter_undescribed_devices", gauge, []string{"node"}, "Devices that the vendor's library counts and that do not tell what they are, as those do that fell off the bus before the exporter started. Absent where the library does not count them."}
	sourceUp       = own{"plimsoll_exporter_source_up", gauge, []string{"node", "source"}, "Whether the source lists its devices; 0 for one that is looked for and is not there."}
	driverStalled  = own{"plimsoll_exporter_driver_stalled", gauge, []string{"node"}, "1 when the vendor's library does not answer at all, or none of several devices does."}
	readSeconds    = own{"plimsoll_exporter_device_read_seconds", gauge, deviceLabels, "Duration of the last reading of the device."}
	callSeconds    = own{"plimsoll_exporter_device_call_seconds", gauge, []string{"node", "call"}, "Longest duration of a call of the vendor's library in the last reading of any device, by call."}
)

var owns = []own{
	nodeDevices, largestFree, freeSlices,
	deviceLost, deviceHung, deviceFailed, lastSample, lastCollection, idleAllocated, ownerInfo,
	xidTotal, throttled, linkBytes, pcieBytes, powerRoom, memoryRoom, thermalRoom, bogusValues,
	podMemory, podUtilization, podPower, podEnergy, strayProcesses, podOwner, apiReachable,
	xidErrors, unsupported, mappedDevices, unmapped, undescribed, driverStalled, sourceUp, readSeconds, callSeconds,
	stalledFor, busyRatio, idleFor, queuedPrograms, workload, megascaleError, sliceError, services,
}

// labelField is a label that a counter file may put on every DCGM metric.
type labelField struct {
	name string
	of   func(device.Device) string // "" where the device does not tell it
}

// labelFields; the first is there without a counter file, as in dcgm-exporter's own.
var labelFields = []labelField{
	{"DCGM_FI_DRIVER_VERSION", func(d device.Device) string { return d.Driver }},
	{"DCGM_FI_NVML_VERSION", func(d device.Device) string { return d.Facts.Library }},
	{"DCGM_FI_DEV_SERIAL", func(d device.Device) string { return d.Facts.Serial }},
	{"DCGM_FI_DEV_VBIOS_VERSION", func(d device.Device) string { return d.Facts.VBIOS }},
	{"DCGM_FI_DEV_INFOROM_IMAGE_VER", func(d device.Device) string { return d.Facts.InfoROM }},
	{"DCGM_FI_DEV_OEM_INFOROM_VER", func(d device.Device) string { return d.Facts.InfoROMOEM }},
	{"DCGM_FI_DEV_ECC_INFOROM_VER", func(d device.Device) string { return d.Facts.InfoROMECC }},
	{"DCGM_FI_DEV_POWER_INFOROM_VER", func(d device.Device) string { return d.Facts.InfoROMPower }},
}

// dcgmLabels come first, in this order, on every DCGM metric; the driver's version
// follows, and container, namespace and pod where something holds the device.
var dcgmLabels = []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"}

// traffic is what is counted in each direction.
var traffic = []struct {
	field     device.Field
	own       own
	direction string
}{
	{device.NVLinkRx, linkBytes, "receive"},
	{device.NVLinkTx, linkBytes, "transmit"},
	{device.PCIeRxBytes, pcieBytes, "receive"},
	{device.PCIeTxBytes, pcieBytes, "transmit"},
}

// reasons for which clocks are held down, and the field that counts each.
var reasons = []struct {
	field device.Field
	name  string
}{
	{device.BoardLimitViolation, "board_limit"},
	{device.HWPowerBrake, "hw_power_brake"},
	{device.HWThermalSlowdown, "hw_thermal"},
	{device.LowUtilViolation, "low_utilization"},
	{device.PowerViolation, "power"},
	{device.ReliabilityViolation, "reliability"},
	{device.SWThermalSlowdown, "sw_thermal"},
	{device.SyncBoostViolation, "sync_boost"},
	{device.ThermalViolation, "thermal"},
}

// fieldName is what a field is called where it is no metric of its own.
func fieldName(f device.Field) string {
	for _, row := range fields {
		if row.field == f {
			return row.name
		}
	}
	for _, row := range reasons {
		if row.field == f {
			return "throttled_" + row.name
		}
	}
	for _, row := range traffic {
		if row.field == f {
			return row.own.name + "_" + row.direction
		}
	}
	return tpuFieldName(f)
}

// severity of an XID, after NVIDIA's catalog.
func severity(xid uint64) string {
	switch xid {
	case 48, 62, 64, 74, 79, 95, 119, 120:
		return "critical"
	case 94:
		return "warning"
	case 13, 31, 43:
		return "application"
	}
	return "info"
}

// notes on what the series of instances and of shared devices are.
const notes = "A MIG instance has `GPU_I_PROFILE` and `GPU_I_ID` before `Hostname`, and the `UUID` of its device: its memory is its own, and stands there instead of on its device; how active its engines and memory are (`DCGM_FI_PROF_…`) is told by GPU instance; state such as temperature, clocks and faults is its device's, and stands on the instances alone; with `--devices=g` all of it stands on the device. " +
	"What holders use up together (power, energy, utilization, memory used, traffic) stands once for a device that several containers hold, with the pod that they share and else without a holder, and on the device alone where it can't be told by instance; so no sum counts it twice. The column *shared* says which stand `once`, and which for `each` holder.\n\n"

// sharing says how often a field stands for a device that several containers hold.
func sharing(f field) string {
	if additive(f) {
		return "once"
	}
	return "each"
}

// WriteMarkdown writes the catalog of every metric.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Metrics\n\nGenerated from the exporter's table by `make generate`.\n\n")
	var more []string
	for _, l := range labelFields[1:] {
		more = append(more, l.name)
	}
	b.WriteString("## Devices, in dcgm-exporter's words\n\nLabels: `" + strings.Join(dcgmLabels, "` `") +
		"`, for a MIG instance `GPU_I_PROFILE` and `GPU_I_ID`, the driver's version as `" + labelFields[0].name + "`, and `container` `namespace` `pod` where a container holds the device (and `dra_*` where a claim gave it); with options `pod_uid`, `vgpu`, `hpc_job` and the pod's own labels among these, sorted. A counter file may ask for the labels `" +
		strings.Join(more, "` `") + "`. What a device can't tell is absent.\n\n" + notes)
	b.WriteString("| metric | type | unit | shared | what | where NVML gives it |\n|---|---|---|---|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", f.name, strings.ToLower(f.kind.String()), f.unit, sharing(f), f.help, f.route)
	}
	fmt.Fprintf(&b, "| `%s` | gauge | 1 | each | %s Labels `err_code` and `err_msg`, sorted among the holder's. | event set |\n", xidErrors.name, xidErrors.help)
	for _, e := range countedEvents {
		fmt.Fprintf(&b, "| `%s` | %s | %s | each | %s Labels `%s` and `window_size_in_ms`. | %s |\n", e.name, strings.ToLower(e.kind.String()), e.unit, e.help, e.label, e.route)
	}
	writeGKE(&b)
	b.WriteString("\n## Placement\n\n`model` is the device's product name with blanks replaced by `-`, as GPU feature discovery labels nodes.\n\n| metric | type | labels | what |\n|---|---|---|---|\n")
	for _, o := range owns {
		if o.labels != nil {
			fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", o.name, strings.ToLower(o.kind.String()), strings.Join(o.labels, "` `"), o.help)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
