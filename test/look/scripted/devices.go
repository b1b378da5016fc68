package scripted

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Properties of a model.
var (
	memoryMiB  = map[string]float64{h100: 81559, a100: 81920, l40s: 46068}
	powerLimit = map[string]float64{h100: 700, a100: 400, l40s: 350}
	maxClock   = map[string]float64{h100: 1980, a100: 1410, l40s: 2520}
	resourceOf = map[string]string{h100: gpuResource, a100: gpuResource, l40s: gpuResource, v5e: tpuResource}
)

const (
	gpuResource = "nvidia.com/gpu"
	tpuResource = "google.com/tpu"
)

// reading holds the values of a GPU at one time.
type reading struct {
	utilization, memory, power, temperature, clock float64
	hot                                            bool
}

func (f *Fleet) read(n *node, d *deviceState, t time.Time) reading {
	r := reading{utilization: f.utilization(n, d, t), hot: f.happens(d.hotFor, t)}
	if d.job != nil {
		r.memory = 0.35 + 0.5*math.Min(1, r.utilization+0.1)
	}
	limit := powerLimit[n.model]
	r.power = limit * (0.11 + 0.82*r.utilization)
	r.temperature = 31 + 38*r.utilization + 4*wave(t, d.uuid, 11*time.Minute)
	r.clock = maxClock[n.model]
	if r.utilization < 0.01 {
		r.clock = 345
	}
	if r.hot {
		r.clock, r.temperature = 0.78*r.clock, 89+wave(t, d.uuid, 3*time.Minute)
	}
	return r
}

// exportNode emits what the exporter of a node exports.
func (f *Fleet) exportNode(e *emitter, c *cluster, n *node) {
	if f.happens(n.silentFor, e.at) {
		return
	}
	e.target("plimsoll-exporter", n.name)
	for _, d := range n.devices {
		if n.model == v5e {
			f.exportChip(e, n, d)
			continue
		}
		f.exportGPU(e, c, n, d)
	}
	if c.bridged {
		return
	}
	faulty := n.name == "edge-4-gpu-1"
	kubeletDown := faulty && f.happens(45*time.Minute, e.at) && !f.happens(30*time.Minute, e.at)
	if !kubeletDown {
		f.exportCounts(e, n)
	}
	held, pods := 0.0, map[string]bool{}
	for _, d := range n.devices {
		if d.job != nil {
			held++
		}
		for _, pod := range d.podNames() {
			if !pods[pod] {
				pods[pod] = true
				e.add("plimsoll_pod_owner_info", 1, "node", n.name, "namespace", d.job.namespace, "pod", pod, "pod_uid", uuid(pod, 0), "owner_kind", d.job.kind, "owner_name", d.job.name)
			}
		}
	}
	version := "1.4.0"
	if c.name == "edge-1" {
		version = "1.3.2"
	}
	e.add("plimsoll_build_info", 1, "component", "exporter", "version", version, "revision", "unknown")
	e.add("plimsoll_exporter_last_collection_timestamp_seconds", e.seconds()-4, "node", n.name)
	e.add("plimsoll_exporter_mapped_devices", float64(len(n.devices)), "node", n.name)
	for reason, v := range map[string]float64{
		"kubelet_unreachable": number(kubeletDown) * float64(len(n.devices)), "allocatable_unknown": 0, "not_allocatable": 0, "allocated_not_listed": number(n.name == "west-gpu-2"),
	} {
		e.add("plimsoll_exporter_unmapped_devices", v, "node", n.name, "reason", reason)
	}
	e.add("plimsoll_exporter_driver_stalled", 0, "node", n.name)
	e.add("plimsoll_exporter_omitted_shares", 0, "node", n.name)
	e.add("plimsoll_exporter_undescribed_devices", 0, "node", n.name)
	e.add("plimsoll_exporter_api_server_reachable", 1, "node", n.name)
	source := map[bool]string{true: "tpu", false: "nvml"}[n.model == v5e]
	e.add("plimsoll_exporter_source_up", 1, "node", n.name, "source", source)
	e.add("plimsoll_exporter_collection_seconds", 0.02+0.03*wave(e.at, n.name+"collection", 13*time.Minute), "node", n.name, "source", source)
	e.add("plimsoll_exporter_collection_errors_total", number(faulty)*math.Floor(f.sinceStart(e.at)/400), "node", n.name, "source", source)
	e.add("plimsoll_exporter_call_errors_total", number(faulty)*math.Floor(f.sinceStart(e.at)/70), "node", n.name, "call", "nvmlDeviceGetPowerUsage")
	e.add("plimsoll_exporter_kubelet_up", number(!kubeletDown), "node", n.name)
	e.add("process_resident_memory_bytes", 21e6+4e6*wave(e.at, n.name, time.Hour))
	for _, call := range []string{"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetFieldValues", "nvmlGpmSampleGet", "nvmlDeviceGetPowerUsage"} {
		if n.model != v5e {
			e.add("plimsoll_exporter_device_call_seconds", 0.0004+0.002*wave(e.at, n.name+call, 9*time.Minute), "node", n.name, "call", call)
		}
	}
}

// exportCounts emits the numbers of devices of a node.
func (f *Fleet) exportCounts(e *emitter, n *node) {
	resource := resourceOf[n.model]
	allocatable, allocated, unhealthy, free := 0.0, 0.0, 0.0, 0.0
	freeInstances := map[string]float64{}
	for _, d := range n.devices {
		if len(d.migInstances) > 0 {
			for i, profile := range d.migInstances {
				if d.job == nil || i > 0 {
					freeInstances[profile]++
				} else {
					freeInstances[profile] += 0
				}
			}
			continue
		}
		allocatable++
		switch broken := f.happens(d.lostFor, e.at) || f.happens(d.hungFor, e.at); {
		case broken && d.job == nil:
			unhealthy++
		case broken:
			unhealthy++
			allocated++
		case d.job != nil:
			allocated++
		default:
			free++
		}
	}
	for state, v := range map[string]float64{"allocatable": allocatable, "allocated": allocated, "unhealthy": unhealthy, "unknown": 0, "free": free} {
		e.add("plimsoll_node_devices", v, "node", n.name, "resource", resource, "model", n.model, "state", state)
	}
	if n.model == h100 || n.model == a100 {
		e.add("plimsoll_node_largest_free_group", free, "node", n.name, "resource", resource, "model", n.model)
	}
	for profile, v := range freeInstances {
		e.add("plimsoll_node_free_mig_instances", v, "node", n.name, "model", n.model, "profile", profile)
	}
}

// exportGPU emits the series of a GPU. A lost GPU has only its state.
func (f *Fleet) exportGPU(e *emitter, c *cluster, n *node, d *deviceState) {
	lost, hung := f.happens(d.lostFor, e.at), f.happens(d.hungFor, e.at)
	r := f.read(n, d, e.at)
	if !c.bridged {
		f.exportState(e, n, d, r, lost, hung)
	}
	if lost || hung {
		return
	}
	if n.model == h100 && !c.bridged {
		e.add("plimsoll_device_fabric_info", 1, "node", n.name, "uuid", d.uuid, "gpu", strconv.Itoa(d.index), "model", n.model, "cluster_uuid", uuid(c.name, 0), "clique", "1")
	}
	if len(d.migInstances) == 0 {
		f.exportDCGM(e, n, d, r)
	}
	for i, profile := range d.migInstances {
		if i > 0 { // the first instance has the holder
			d = &deviceState{index: d.index, uuid: d.uuid, migInstances: d.migInstances}
			r = f.read(n, d, e.at)
		}
		f.exportDCGM(e, n, d, r, "GPU_I_PROFILE", profile, "GPU_I_ID", strconv.Itoa(i+1))
	}
}

// exportDCGM emits dcgm-exporter's series of a GPU or MIG instance.
func (f *Fleet) exportDCGM(e *emitter, n *node, d *deviceState, r reading, instance ...string) {
	labels := append([]string{
		"gpu", strconv.Itoa(d.index), "UUID", d.uuid, "pci_bus_id", fmt.Sprintf("00000000:%02X:00.0", 0x19+d.index), "device", fmt.Sprintf("nvidia%d", d.index),
		"modelName", strings.ReplaceAll(n.model, "-", " "), "Hostname", n.name, "DCGM_FI_DRIVER_VERSION", "580.95.05",
	}, instance...)
	if d.job != nil {
		labels = append(labels, "namespace", d.job.namespace, "pod", d.podName(), "container", "main")
	}
	dcgm := func(name string, v float64) { e.add("DCGM_FI_"+name, v, labels...) }
	memory, elapsed := memoryMiB[n.model], f.sinceStart(e.at)
	corrected, remapped, linkErrors := d.correctedErrors, d.remappedRows, 0.0
	if corrected > 0 {
		corrected += elapsed / 40
	}
	if d.linkErrors {
		linkErrors = elapsed / 90
	}
	dcgm("DEV_SM_CLOCK", r.clock)
	dcgm("DEV_MEM_CLOCK", 2619)
	dcgm("DEV_GPU_TEMP", r.temperature)
	dcgm("DEV_MEMORY_TEMP", r.temperature+6)
	dcgm("DEV_POWER_USAGE", r.power)
	dcgm("DEV_ENFORCED_POWER_LIMIT", powerLimit[n.model])
	dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", mean(n, d)*elapsed*1000)
	dcgm("DEV_FB_USED", r.memory*memory)
	dcgm("DEV_FB_FREE", (1-r.memory)*memory)
	if len(d.migInstances) == 0 {
		dcgm("DEV_GPU_UTIL", math.Round(100*r.utilization))
	}
	dcgm("PROF_GR_ENGINE_ACTIVE", r.utilization)
	dcgm("PROF_SM_ACTIVE", 0.85*r.utilization)
	dcgm("PROF_PIPE_TENSOR_ACTIVE", 0.45*r.utilization)
	dcgm("PROF_DRAM_ACTIVE", 0.5*r.utilization)
	dcgm("DEV_ECC_SBE_VOL_TOTAL", math.Floor(corrected))
	dcgm("DEV_ECC_DBE_VOL_TOTAL", 0)
	dcgm("DEV_UNCORRECTABLE_REMAPPED_ROWS", remapped)
	dcgm("DEV_CORRECTABLE_REMAPPED_ROWS", 0)
	dcgm("DEV_ROW_REMAP_FAILURE", 0)
	dcgm("DEV_XID_ERRORS", 0)
	if n.model != l40s {
		dcgm("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 0)
		dcgm("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 0)
		dcgm("DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", math.Floor(linkErrors))
		dcgm("DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 0)
	}
}

// exportState emits Plimsoll's own series of a GPU.
func (f *Fleet) exportState(e *emitter, n *node, d *deviceState, r reading, lost, hung bool) {
	id := []string{"node", n.name, "uuid", d.uuid, "gpu", strconv.Itoa(d.index), "model", n.model}
	own := func(name string, v float64, more ...string) { e.add("plimsoll_"+name, v, append(more, id...)...) }
	own("device_lost", number(lost))
	own("device_hung", number(hung))
	own("device_failed", 0)
	for _, pod := range d.podNames() {
		own("device_owner_info", 1, "namespace", d.job.namespace, "pod", pod, "container", "main")
	}
	if lost {
		own("xid_total", 1, "xid", "79", "severity", "critical")
		return
	}
	if d.correctedErrors > 0 && f.happens(80*time.Minute, e.at) {
		own("xid_total", 2, "xid", "63", "severity", "warning")
	}
	if f.happens(d.unknownXIDFor, e.at) {
		own("xid_total", 1, "xid", "999", "severity", "unknown")
	}
	own("device_last_sample_timestamp_seconds", e.seconds()-4-number(hung)*600)
	if hung {
		return
	}
	elapsed, memory := f.sinceStart(e.at), memoryMiB[n.model]*(1<<20)
	for _, reason := range []string{"sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake"} {
		share := map[string]float64{"sw_power_cap": 0.12 * number(d.job != nil && d.job.load == training)}[reason]
		if r.hot && reason == "sw_thermal" {
			own("device_throttled_seconds_total", 0.4*(e.at.Sub(f.end)+d.hotFor).Seconds(), "reason", reason)
			continue
		}
		own("device_throttled_seconds_total", share*elapsed, "reason", reason)
	}
	for _, direction := range []string{"transmit", "receive"} {
		if n.model != l40s {
			own("device_nvlink_bytes_total", 2.1e7*mean(n, d)*elapsed, "direction", direction)
		}
		own("device_pcie_bytes_total", 1.3e6*mean(n, d)*elapsed, "direction", direction)
	}
	own("device_power_headroom_watts", powerLimit[n.model]-r.power)
	own("device_memory_headroom_bytes", (1-r.memory)*memory)
	own("device_thermal_headroom_celsius", 87-r.temperature)
	own("device_row_remap_pending", number(d.remapPending))
	own("device_energy_joules_total", mean(n, d)*elapsed)
	own("exporter_device_read_seconds", 0.004+0.003*wave(e.at, d.uuid, 8*time.Minute))
	own("exporter_bogus_values_total", number(n.name == "edge-4-gpu-1")*math.Floor(elapsed/600), "field", "temperature")
	if d.job == nil {
		return
	}
	idleFor := 0.0
	if r.utilization < 0.01 {
		idleFor = elapsed
	}
	own("device_idle_allocated_seconds", idleFor)
	pods := d.podNames()
	for i, pod := range pods {
		part, attribution := 1.0, "device"
		if len(pods) > 1 {
			part, attribution = []float64{0.75, 0.25}[i], "process"
		}
		holder := []string{"namespace", d.job.namespace, "pod", pod, "attribution", attribution}
		own("pod_device_memory_used_bytes", part*r.memory*memory, holder...)
		if len(d.migInstances) == 0 {
			own("pod_device_utilization_ratio", part*r.utilization, holder...)
			own("pod_device_power_watts", part*r.power, holder...)
			own("pod_device_energy_joules_total", part*mean(n, d)*elapsed, holder...)
		}
	}
	exportShares(own, d, memory)
}

// exportShares emits what a shared device offers, and one share of each pod. Only MPS divides
// the memory.
func exportShares(own func(string, float64, ...string), d *deviceState, memory float64) {
	if d.shares == 0 {
		return
	}
	offered := map[string]float64{"shares": d.shares}
	if d.sharedBy == "mps" {
		offered["memory"] = memory
	}
	for dimension, capacity := range offered {
		labels, share := []string{"provider", d.sharedBy, "dimension", dimension}, capacity/d.shares
		own("device_share_capacity", capacity, labels...)
		own("device_share_allocated", share*float64(len(d.podNames())), labels...)
		for _, pod := range d.podNames() {
			own("pod_device_share", share, append([]string{"namespace", d.job.namespace, "pod", pod}, labels...)...)
		}
	}
}

// exportChip emits the series of a TPU chip.
func (f *Fleet) exportChip(e *emitter, n *node, d *deviceState) {
	id := []string{"node", n.name, "uuid", d.uuid, "gpu", strconv.Itoa(d.index), "model", n.model}
	own := func(name string, v float64, more ...string) { e.add("plimsoll_"+name, v, append(more, id...)...) }
	busy, stalled := f.utilization(n, d, e.at), f.happens(d.stalledFor, e.at)
	own("device_lost", 0)
	own("device_hung", 0)
	own("device_failed", 0)
	own("device_last_sample_timestamp_seconds", e.seconds()-4)
	own("device_busy_ratio", busy)
	own("device_workload_up", number(d.job != nil))
	own("device_slice_error", number(stalled && d.index == 0))
	own("device_megascale_error", 0)
	stalledFor := 0.0
	if stalled {
		stalledFor = (e.at.Sub(f.end) + d.stalledFor).Seconds()
	}
	own("device_stalled_seconds", stalledFor)
	queued, idleFor := 0.0, f.sinceStart(e.at)
	if d.job != nil {
		own("device_owner_info", 1, "namespace", d.job.namespace, "pod", d.podName(), "container", "main")
		queued, idleFor = math.Round(3+8*wave(e.at, d.uuid, 4*time.Minute)), stalledFor
	}
	own("device_queued_programs", queued)
	own("device_idle_seconds", idleFor)
	chip := []string{"accelerator_id", fmt.Sprintf("%s-%d", n.name, d.index), "make", "cloud-tpu", "model", n.model, "tpu_topology", "4x4"}
	const memory = 16 << 30
	e.add("memory_total_node", memory, chip...)
	e.add("memory_used_node", memory*(0.05+0.8*number(d.job != nil)), chip...)
	e.add("duty_cycle_node", 100*busy, chip...)
	if d.index == 0 {
		for _, state := range []string{"serving", "idle", "failed"} {
			serving := map[bool]string{true: "serving", false: "idle"}[d.job != nil]
			e.add("plimsoll_exporter_services", number(state == serving), "node", n.name, "service", "runtime", "state", state)
			e.add("plimsoll_exporter_services", number(state == "serving"), "node", n.name, "service", "plugin", "state", state)
		}
	}
}

// mean returns the power that counters of a GPU grow by each second.
func mean(n *node, d *deviceState) float64 {
	if d.job == nil {
		return 0.11 * powerLimit[n.model]
	}
	return 0.7 * powerLimit[n.model]
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
