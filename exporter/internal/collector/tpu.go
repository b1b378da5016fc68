package collector

import (
	"maps"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// gkeFamilies are the metrics of GKE's device plugin for TPUs. Each has a variant
// NAME_node without the labels of a container.
var gkeFamilies = []struct {
	field                   device.Field
	name, unit, help, route string
}{
	{device.DutyCycle, "duty_cycle", "%", "Ratio of time in which the chip computed (in %).", "tpu.runtime.tensorcore.dutycycle.percent"},
	{device.AcceleratorMemoryTotal, "memory_total", "bytes", "Total memory of the chip (in bytes).", "tpu.runtime.hbm.memory.total.bytes, or the chip's generation"},
	{device.AcceleratorMemoryUsed, "memory_used", "bytes", "Allocated memory of the chip (in bytes).", "tpu.runtime.hbm.memory.usage.bytes"},
	{device.TensorCoreUtil, "tensorcore_utilization", "%", "Utilization of the chip's TensorCores (in %).", "relayed from the device plugin"},
	{device.MemoryBandwidthUtil, "memory_bandwidth_utilization", "%", "Utilization of the chip's memory bandwidth (in %).", "tpu.runtime.hbm.utilization.percent, or relayed from the device plugin"},
}

// Labels of GKE's metrics, in the order of the output.
var (
	gkeNodeLabels      = []string{"accelerator_id", "make", "model", "tpu_topology"}
	gkeContainerLabels = []string{"accelerator_id", "container", "make", "model", "namespace", "pod", "tpu_topology"}
)

var acceleratorRequest = metric{"accelerator_request", gauge, []string{"container", "namespace", "pod", "resource_name"}, "TPU chips that are allocated to the container."}

// tpuResource is the resource name by which pods request TPUs.
const tpuResource = "google.com/tpu"

// Plimsoll's metrics of TPUs.
var (
	stalledFor     = metric{"plimsoll_device_stalled_seconds", gauge, deviceLabels, "Time for which programs have been queued on the chip without progress of a program counter, in seconds. Without program counters: time without computation. 0 if there is progress or the queue is empty."}
	busyRatio      = metric{"plimsoll_device_busy_ratio", gauge, deviceLabels, "Ratio of time in which the device computed. 0 while no workload runs on a TPU, absent while that is unknown. TPUs and AMD GPUs only: NVIDIA GPUs have dcgm-exporter's metrics."}
	idleFor        = metric{"plimsoll_device_idle_seconds", gauge, deviceLabels, "Time since the last computation of the chip, in seconds."}
	queuedPrograms = metric{"plimsoll_device_queued_programs", gauge, deviceLabels, "Programs that wait for execution on the chip."}
	workloadUp     = metric{"plimsoll_device_workload_up", gauge, deviceLabels, "1 if the runtime of a workload reports the chip, 0 if no workload runs. Absent while that is unknown."}
	megascaleError = metric{"plimsoll_device_megascale_error", gauge, deviceLabels, "1 if the workload on the chip reports an error between slices."}
	sliceError     = metric{"plimsoll_device_slice_error", gauge, deviceLabels, "1 if the workload on the chip reports an error within its slice."}
	services       = metric{"plimsoll_exporter_services", gauge, []string{"node", "service", "state"}, "Services that report about TPUs (runtime, plugin, and the processes that hold chips) by state: serving, idle (no workload) and failed."}
)

// tpuMetrics are the metrics of Plimsoll that are values of a TPU field.
var tpuMetrics = []struct {
	metric
	field device.Field
}{
	{stalledFor, device.StalledSeconds}, {idleFor, device.IdleSeconds}, {queuedPrograms, device.QueuedPrograms}, {workloadUp, device.Workload},
	{megascaleError, device.MegascaleError}, {sliceError, device.SliceError},
}

// renderTPU writes the metrics of a TPU chip.
func (r *renderer) renderTPU(d *deviceSnapshot) {
	if d.device.TPU == nil || !d.fresh {
		return
	}
	for _, f := range gkeFamilies {
		v, ok := d.reading.Get(f.field)
		if !ok || d.device.Minor == "" { // without a driver, accelerator_id is the same for every chip
			continue
		}
		r.families.addSeries(f.name+"_node", gauge, f.help, r.gkeLabels(gkeNodeLabels, d.device, podmap.Holder{}), v)
		for _, h := range d.holders {
			r.families.addSeries(f.name, gauge, f.help, r.gkeLabels(gkeContainerLabels, d.device, h), v)
		}
	}
	labels := r.deviceLabelValues(d)
	for _, m := range tpuMetrics {
		if v, ok := d.reading.Get(m.field); ok {
			r.families.add(m.metric, v, labels...)
		}
	}
	if percent, ok := utilization(d.reading); ok {
		r.families.add(busyRatio, percent/100, labels...)
	}
	total, known := d.reading.Get(device.AcceleratorMemoryTotal)
	if used, ok := d.reading.Get(device.AcceleratorMemoryUsed); ok && known {
		r.families.add(memoryHeadroom, max(0, total-used), labels...)
	}
}

// gkeLabels returns the labels of a chip for the given names. Labels with an empty value
// are left out.
func (r *renderer) gkeLabels(names []string, d device.Device, h podmap.Holder) labelText {
	values := map[string]string{"accelerator_id": r.node + "-" + strings.TrimPrefix(d.Minor, "tpu"), "make": "cloud-tpu", "model": modelLabel(d), "tpu_topology": d.TPU.Topology,
		"namespace": h.Namespace, "pod": h.Pod, "container": h.Container}
	var labels []label
	for _, name := range names {
		if value := values[name]; value != "" {
			labels = append(labels, label{name, value})
		}
	}
	return formatLabels(labels)
}

// renderAcceleratorRequests writes the number of TPU chips of each container.
func (r *renderer) renderAcceleratorRequests() {
	chips := map[podmap.Holder]float64{}
	for chip, resource := range r.snapshot.pods.Allocatable {
		for _, h := range r.snapshot.pods.Holders[chip] {
			if resource == tpuResource {
				chips[h]++
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(chips), func(a, b podmap.Holder) int {
		return slices.Compare([]string{a.Namespace, a.Pod, a.Container}, []string{b.Namespace, b.Pod, b.Container})
	})
	for _, h := range order {
		r.families.add(acceleratorRequest, chips[h], h.Container, h.Namespace, h.Pod, tpuResource)
	}
}

// renderServices writes the number of services by name and state.
func (r *renderer) renderServices() {
	counts := map[[2]string]float64{}
	for _, s := range r.snapshot.services {
		for _, state := range []device.ServiceState{device.ServiceFailed, device.ServiceIdle, device.ServiceServing} {
			counts[[2]string{s.Name, string(state)}] += boolValue(s.State == state)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		r.families.add(services, counts[key], r.node, key[0], key[1])
	}
}

// TPUCoverage returns how many of GKE's metrics a reading provides, and the names of
// those that it lacks.
func TPUCoverage(r device.Reading) (provided int, missing []string) {
	for _, f := range gkeFamilies {
		if _, ok := r.Get(f.field); ok {
			provided++
		} else {
			missing = append(missing, f.name)
		}
	}
	return provided, missing
}

func tpuFieldName(f device.Field) string {
	for _, row := range gkeFamilies {
		if row.field == f {
			return row.name
		}
	}
	for _, row := range tpuMetrics {
		if row.field == f {
			return row.name
		}
	}
	return ""
}
