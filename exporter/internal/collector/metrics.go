package collector

import (
	dto "github.com/prometheus/client_model/go"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// metric describes a metric of Plimsoll.
type metric struct {
	name   string
	kind   dto.MetricType
	labels []string
	help   string
}

var (
	deviceLabels = []string{"node", "uuid", "gpu", "model"}
	podLabels    = append(deviceLabels[:4:4], "namespace", "pod", "attribution")
)

// Metrics of the node.
var (
	nodeDevices      = metric{"plimsoll_node_devices", gauge, []string{"node", "resource", "model", "state"}, "Devices of the node by state: allocatable, allocated, unhealthy, unknown (the kubelet reports an id that belongs to no device of the driver, so it is not known which device is allocated; or the driver does not report whether the device is partitioned), and free (allocatable, healthy, not allocated, not unknown, not shared and not in MIG mode)."}
	largestFree      = metric{"plimsoll_node_largest_free_group", gauge, []string{"node", "resource", "model"}, "Size of the largest group of free devices connected by NVLink or xGMI. Absent if no device has such links."}
	freeMIGInstances = metric{"plimsoll_node_free_mig_instances", gauge, []string{"node", "model", "profile"}, "Free MIG instances by model of the device and profile. 0 if all existing instances are allocated."}
)

// Metrics of a device.
var (
	deviceLost      = metric{"plimsoll_device_lost", gauge, deviceLabels, "1 if the device fell off the bus."}
	deviceHung      = metric{"plimsoll_device_hung", gauge, deviceLabels, "1 if a call to the device exceeds its deadline."}
	deviceFailed    = metric{"plimsoll_device_failed", gauge, deviceLabels, "1 if calls to the device return errors, for example because the device needs a reset."}
	lastSample      = metric{"plimsoll_device_last_sample_timestamp_seconds", gauge, deviceLabels, "Unix time of the last successful reading of the device."}
	idleAllocated   = metric{"plimsoll_device_idle_allocated_seconds", gauge, deviceLabels, "Time for which the device has been allocated with less than 1% utilization, in seconds. 0 while it is busy."}
	ownerInfo       = metric{"plimsoll_device_owner_info", gauge, append(deviceLabels, "namespace", "pod", "container"), "1 for each container that holds the device."}
	shareCapacity   = metric{"plimsoll_device_share_capacity", gauge, append(deviceLabels, "provider", "dimension"), "What a shared device offers, by dimension: shares (replicas), memory (bytes) and cores (1 for all). provider is nvidia (time-slicing), mps (NVIDIA or GKE with MPS), gke (time-sharing), hami, kai (KAI Scheduler, with --kubernetes-kai-shares: reserved devices and unallocated ones) or dra (a device that several resource claims can allocate, with --kubernetes-claim-shares). Time-slicing has only shares. With kai there is only memory, in whole hundreds of MiB. With dra, memory is the capacity memory of the device's ResourceSlice, cores is present if its capacity cores is 100, and shares only if its other capacities limit the number of claims. Absent for a device that is not shared, and if the kubelet does not report the shares. Also absent whenever plimsoll_device_share_allocated is absent."}
	shareAllocated  = metric{"plimsoll_device_share_allocated", gauge, append(deviceLabels, "provider", "dimension"), "The part of plimsoll_device_share_capacity that is allocated to containers. HAMi's memory and cores require the API server (--kubernetes-pod-owners) and are absent while the assignment of any pod that holds devices of HAMi on the node is unknown, or that of a pod on the device has no memory. A container of HAMi without a limit of cores counts 0 cores. HAMi can assign more memory than a device has: then all of it is allocated. Absent for a device whose MIG mode is on or unknown. Absent while the device is also allocated in another way: for example, as a whole to a pod that has run since before a device plugin offered shares of it. With kai, absent for a reserved device while no pod that shares it is known, or while the API server has not shown a pod that the kubelet lists. With dra, absent while the consumption of a claim on the device is unknown (plimsoll_exporter_unknown_claims), while the kubelet reports a claim of the node without its devices (five minutes at most), and for a device with a taint (NoSchedule or NoExecute)."}
	sharePolicy     = metric{"plimsoll_device_share_policy", gauge, append(deviceLabels, "provider", "dimension", "bound"), "What kube-scheduler rounds a request of a claim up to, in the unit of the dimension. bound is default (for a claim without a request), and either min, max and step, or value0 to value9 (the only amounts). A device without a policy has the default of its whole capacity and a step of one byte, or 1% of the cores."}
	xidTotal        = metric{"plimsoll_xid_total", counter, append(deviceLabels, "xid", "severity"), "XID events since the exporter started. severity is critical (reset or restart the device or node), warning, application (restart the application), info, or unknown (not in NVIDIA's XID catalog)."}
	throttled       = metric{"plimsoll_device_throttled_seconds_total", counter, append(deviceLabels, "reason"), "Time with reduced clocks since the driver was loaded, by reason, in seconds. thermal is the sum of sw_thermal and hw_thermal, and only exported if the driver does not divide it."}
	linkBytes       = metric{"plimsoll_device_nvlink_bytes_total", counter, append(deviceLabels, "direction"), "Bytes of data over all NVLinks of the device since the driver was loaded."}
	pcieBytes       = metric{"plimsoll_device_pcie_bytes_total", counter, append(deviceLabels, "direction"), "Bytes over PCIe since the driver was loaded."}
	powerHeadroom   = metric{"plimsoll_device_power_headroom_watts", gauge, deviceLabels, "Enforced power limit minus power draw, in watts. At least 0."}
	memoryHeadroom  = metric{"plimsoll_device_memory_headroom_bytes", gauge, deviceLabels, "Free memory of the device in bytes."}
	thermalHeadroom = metric{"plimsoll_device_thermal_headroom_celsius", gauge, deviceLabels, "Margin to the nearest slowdown temperature in degrees Celsius. Negative while the device is slowed down."}
	fabricInfo      = metric{"plimsoll_device_fabric_info", gauge, append(deviceLabels, "cluster_uuid", "clique"), "1 for each device that has joined an NVLink fabric. Devices with the same cluster_uuid and clique are connected, also on different nodes."}
	remapPending    = metric{"plimsoll_device_row_remap_pending", gauge, deviceLabels, "1 if a remapping of rows takes effect only after a reset of the device."}
	bogusValues     = metric{"plimsoll_exporter_bogus_values_total", counter, append(deviceLabels, "field"), "Values that were left out because they are impossible, such as 1000 degrees, by field."}
)

// Metrics of a pod on a device.
var (
	podMemory             = metric{"plimsoll_pod_device_memory_used_bytes", gauge, podLabels, "Used memory of the device that is attributed to the pod, in bytes. The values of all pods never exceed the device. attribution is the method: device (the pod is the only holder), split (evenly by replicas), process (by the processes of the pod)."}
	podUtilization        = metric{"plimsoll_pod_device_utilization_ratio", gauge, podLabels, "Utilization of the device that is attributed to the pod, 0..1 of the device. Absent for MIG instances."}
	podPower              = metric{"plimsoll_pod_device_power_watts", gauge, podLabels, "Power draw of the device that is attributed to the pod, in watts. Absent for MIG instances."}
	podEnergy             = metric{"plimsoll_pod_device_energy_joules_total", counter, podLabels, "Energy of the device that is attributed to the pod, in joules, since the exporter first saw the pod hold the device."}
	podShare              = metric{"plimsoll_pod_device_share", gauge, append(deviceLabels, "namespace", "pod", "provider", "dimension"), "The part of plimsoll_device_share_allocated that is allocated to the pod: its share of the device, by dimension. Absent for a dimension in which nothing limits the pod."}
	unattributedProcesses = metric{"plimsoll_exporter_unattributed_processes", gauge, deviceLabels, "Processes on the device that belong to no known pod. Requires --attribution=process."}
	podOwner              = metric{"plimsoll_pod_owner_info", gauge, []string{"node", "namespace", "pod", "pod_uid", "owner_kind", "owner_name"}, "1 for each pod that holds a device, with its topmost controller (Job, JobSet, RayJob, PyTorchJob and so on). A pod without a controller is its own owner. Requires --kubernetes-pod-owners."}
)

// Metrics of the exporter.
var (
	apiReachable       = metric{"plimsoll_exporter_api_server_reachable", gauge, []string{"node"}, "1 if the last request for the node's pods to the API server succeeded. While 0, the exporter uses the last known metadata. Absent if the API server is not queried."}
	slicesReachable    = metric{"plimsoll_exporter_resource_slices_reachable", gauge, []string{"node"}, "1 if the last request for the node's ResourceSlices to the API server succeeded. While 0, the exporter uses the last known ones. Absent without --kubernetes-claim-shares."}
	unknownClaims      = metric{"plimsoll_exporter_unknown_claims", gauge, []string{"node", "reason"}, "Resource claims on devices that several claims can allocate whose consumption is unknown, by reason: forbidden, invalid (no valid allocation of the device, or none of one of its capacities), not_found, pending (not read yet) and unreachable. Their devices have no shares of dra. Absent without --kubernetes-claim-shares."}
	unsupportedField   = metric{"plimsoll_exporter_unsupported_field", gauge, []string{"node", "field"}, "1 for each field of the counter file that this exporter does not support."}
	mappedDevices      = metric{"plimsoll_exporter_mapped_devices", gauge, []string{"node"}, "Devices that the kubelet's PodResources API lists."}
	unmapped           = metric{"plimsoll_exporter_unmapped_devices", gauge, []string{"node", "reason"}, "Devices whose holder is unknown, by reason: kubelet_unreachable, kubelet_disabled, allocatable_unknown (the kubelet does not report allocatable devices), not_allocatable, allocatable_not_listed (the driver does not list an allocatable device), allocated_not_listed (the driver does not list an allocated device), unknown_id_format."}
	omittedShares      = metric{"plimsoll_exporter_omitted_shares", gauge, []string{"node"}, "Holders of devices (with replicas and jobs, if these have series of their own) that have no series, because the node has more than 1000. Every device keeps the same number of holders with series. Free devices and the usage of other holders are not affected."}
	undescribedDevices = metric{"plimsoll_exporter_undescribed_devices", gauge, []string{"node"}, "Devices that the vendor's library counts but cannot describe, for example because they fell off the bus before the exporter started. Absent if the library does not count them."}
	sourceUp           = metric{"plimsoll_exporter_source_up", gauge, []string{"node", "source"}, "1 if the source lists its devices, 0 if the source is unavailable."}
	kubeletUp          = metric{"plimsoll_exporter_kubelet_up", gauge, []string{"node"}, "1 if the last query to the kubelet returned the allocation of devices. Absent with --no-kubernetes."}
	collectionErrors   = metric{"plimsoll_exporter_collection_errors_total", counter, []string{"node", "source"}, "Collections that could not list the devices of the source, since the exporter started."}
	collectionDuration = metric{"plimsoll_exporter_collection_seconds", gauge, []string{"node", "source"}, "Duration of the last collection of the source, in seconds. 0 before the first."}
	callErrors         = metric{"plimsoll_exporter_call_errors_total", counter, []string{"node", "call"}, "Failed calls to the vendor's library on devices that could be read otherwise, by call, since the exporter started. The log has the reason."}
	callDenied         = metric{"plimsoll_exporter_call_denied", gauge, []string{"node", "call"}, "1 if the driver denies a call in the last readings for lack of a privilege. For nvmlGpmMetricsGet, which provides DCGM_FI_PROF_* metrics, the container needs CAP_SYS_ADMIN."}
	driverStalled      = metric{"plimsoll_exporter_driver_stalled", gauge, []string{"node"}, "1 if no call to the vendor's library returns, or if all of several devices hang."}
	lastCollection     = metric{"plimsoll_exporter_last_collection_timestamp_seconds", gauge, []string{"node"}, "Unix time of the oldest part of the last collection: the start of the query for the holders of devices, if the kubelet responded, or the end of the last readings of the source that was read longest ago. An allocation after that time may be missing in plimsoll_node_devices and plimsoll_device_share_allocated."}
	readDuration       = metric{"plimsoll_exporter_device_read_seconds", gauge, deviceLabels, "Duration of the last reading of the device in seconds."}
	callDuration       = metric{"plimsoll_exporter_device_call_seconds", gauge, []string{"node", "call"}, "Longest duration of a call to the vendor's library in the last readings of all devices, by call, in seconds."}
)

// plimsollMetrics are all metrics of Plimsoll in the order of the catalog.
var plimsollMetrics = []metric{
	nodeDevices, largestFree, freeMIGInstances,
	deviceLost, deviceHung, deviceFailed, lastSample, lastCollection, idleAllocated, ownerInfo, shareCapacity, shareAllocated, sharePolicy,
	xidTotal, throttled, linkBytes, pcieBytes, powerHeadroom, memoryHeadroom, thermalHeadroom, fabricInfo, remapPending, bogusValues,
	podMemory, podUtilization, podPower, podEnergy, podShare, unattributedProcesses, podOwner, apiReachable, slicesReachable, unknownClaims,
	unsupportedField, mappedDevices, unmapped, omittedShares, undescribedDevices, driverStalled, sourceUp, kubeletUp, collectionErrors, collectionDuration, readDuration, callDuration, callErrors, callDenied,
	memoryTotal, memoryUsed, temperature, powerDraw, energyTotal,
	stalledFor, busyRatio, idleFor, queuedPrograms, workloadUp, megascaleError, sliceError, services,
}

// traffic are the counters of traffic by direction.
var traffic = []struct {
	field     device.Field
	metric    metric
	direction string
}{
	{device.NVLinkRx, linkBytes, "receive"},
	{device.NVLinkTx, linkBytes, "transmit"},
	{device.PCIeRxBytes, pcieBytes, "receive"},
	{device.PCIeTxBytes, pcieBytes, "transmit"},
}

// throttleReasons are the reasons for reduced clocks and the fields that measure them.
var throttleReasons = []struct {
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

// fieldName returns the name of a field of a vendor's devices in
// plimsoll_exporter_bogus_values_total.
func fieldName(vendor device.Vendor, f device.Field) string {
	if name := sensorName(f); vendor == device.AMD && name != "" {
		return name
	}
	for _, row := range dcgmFields {
		if row.field == f {
			return row.name
		}
	}
	for _, row := range throttleReasons {
		if row.field == f {
			return "throttled_" + row.name
		}
	}
	for _, row := range traffic {
		if row.field == f {
			return row.metric.name + "_" + row.direction
		}
	}
	if f == device.RowRemapPending {
		return remapPending.name
	}
	if f == device.ComputeMode {
		return "compute_mode"
	}
	return tpuFieldName(f)
}
