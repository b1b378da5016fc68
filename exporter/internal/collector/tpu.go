package collector

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// gkeFamilies are TPU metrics as GKE's device plugin names them. Each has a twin of
// the node, NAME_node, without the labels of a container.
var gkeFamilies = []struct {
	field                   device.Field
	name, unit, help, route string
}{
	{device.DutyCycle, "duty_cycle", "%", "Share of the time in which the chip computed (in %).", "tpu.runtime.tensorcore.dutycycle.percent"},
	{device.AcceleratorMemoryTotal, "memory_total", "bytes", "Memory of the chip (in bytes).", "tpu.runtime.hbm.memory.total.bytes, or the chip's generation"},
	{device.AcceleratorMemoryUsed, "memory_used", "bytes", "Memory of the chip that is allocated (in bytes).", "tpu.runtime.hbm.memory.usage.bytes"},
	{device.TensorCoreUtil, "tensorcore_utilization", "%", "Utilization of the chip's TensorCores (in %).", "relayed from the device plugin"},
	{device.MemoryBandwidthUtil, "memory_bandwidth_utilization", "%", "Utilization of the chip's memory bandwidth (in %).", "tpu.runtime.hbm.utilization.percent, or relayed"},
}

// Labels of GKE's families, in the order in which they are written.
var (
	gkeNode      = []string{"accelerator_id", "make", "model", "tpu_topology"}
	gkeContainer = []string{"accelerator_id", "container", "make", "model", "namespace", "pod", "tpu_topology"}
)

var acceleratorRequest = own{"accelerator_request", gauge, []string{"container", "namespace", "pod", "resource_name"}, "TPU chips that the container has been given."}

// tpuResource is what pods ask TPUs by.
const tpuResource = "google.com/tpu"

// What only TPUs tell, in our words.
var (
	stalledFor     = own{"plimsoll_device_stalled_seconds", gauge, deviceLabels, "Seconds for which programs have been queued on the chip while no program counter moved (where those are not told: while it computed nothing); 0 when it moves or nothing is queued."}
	busyRatio      = own{"plimsoll_device_busy_ratio", gauge, deviceLabels, "Share of the time in which the chip computed; 0 while no workload's runtime answers for it. TPUs only."}
	idleFor        = own{"plimsoll_device_idle_seconds", gauge, deviceLabels, "Seconds since the chip last computed."}
	queuedPrograms = own{"plimsoll_device_queued_programs", gauge, deviceLabels, "Programs that wait to be executed on the chip."}
	workload       = own{"plimsoll_device_workload_up", gauge, deviceLabels, "1 when a workload's runtime answers for the chip, 0 when none does."}
	megascaleError = own{"plimsoll_device_megascale_error", gauge, deviceLabels, "1 when the workload on the chip has found an error between slices."}
	sliceError     = own{"plimsoll_device_slice_error", gauge, deviceLabels, "1 when the workload on the chip has found an error within its slice."}
	services       = own{"plimsoll_exporter_services", gauge, []string{"node", "service", "state"}, "What TPUs are told of by (runtime, plugin, and the processes that hold them) by state: serving, idle (no workload) and failed."}
)

var tpuOwns = []struct {
	own
	field device.Field
}{
	{stalledFor, device.StalledSeconds}, {idleFor, device.IdleSeconds}, {queuedPrograms, device.QueuedPrograms}, {workload, device.Workload},
	{megascaleError, device.MegascaleError}, {sliceError, device.SliceError},
}

// busy is the device's utilization in %. A TPU without a workload's runtime is at 0.
func busy(r device.Reading) (float64, bool) {
	for _, f := range []device.Field{device.GPUUtil, device.DutyCycle} {
		if v, ok := r.Get(f); ok {
			return v, true
		}
	}
	if active, ok := r.Get(device.EngineActive); ok { // a MIG instance tells no other
		return 100 * active, true
	}
	up, told := r.Get(device.Workload)
	return 0, told && up == 0
}

// renderTPU writes what a chip tells.
func (c *Collector) renderTPU(p page, k *known, holders []podmap.Holder) {
	d := k.device
	if d.TPU == nil || !k.fresh {
		return
	}
	id := c.cfg.Node + "-" + strings.TrimPrefix(d.Minor, "tpu")
	node := gkeLabels(gkeNode, id, modelOf(d), d.TPU.Topology, podmap.Holder{})
	for _, f := range gkeFamilies {
		v, ok := k.reading.Get(f.field)
		if !ok {
			continue
		}
		p.add(f.name+"_node", gauge, f.help, node, v)
		for _, h := range holders {
			p.add(f.name, gauge, f.help, gkeLabels(gkeContainer, id, modelOf(d), d.TPU.Topology, h), v)
		}
	}
	labels := []string{c.cfg.Node, d.UUID, strconv.Itoa(d.Index), modelOf(d)}
	for _, o := range tpuOwns {
		if v, ok := k.reading.Get(o.field); ok {
			p.own(o.own, v, labels...)
		}
	}
	if percent, ok := busy(k.reading); ok {
		p.own(busyRatio, percent/100, labels...)
	}
	total, told := k.reading.Get(device.AcceleratorMemoryTotal)
	if used, ok := k.reading.Get(device.AcceleratorMemoryUsed); ok && told {
		p.own(memoryRoom, max(0, total-used), labels...)
	}
}

// gkeLabels of a chip; the topology is left out where it is not known.
func gkeLabels(names []string, id, model, topology string, h podmap.Holder) labelText {
	all := map[string]string{"accelerator_id": id, "make": "cloud-tpu", "model": model, "tpu_topology": topology,
		"namespace": h.Namespace, "pod": h.Pod, "container": h.Container}
	var labels []label
	for _, name := range names {
		if value := all[name]; value != "" {
			labels = append(labels, label{name, value})
		}
	}
	return text(labels)
}

// renderTPUNode writes what containers were given, and what the services are up to.
func (c *Collector) renderTPUNode(p page, pods podmap.Map) {
	given := map[podmap.Holder]float64{}
	for chip, resource := range pods.Allocatable {
		for _, h := range pods.Holders[chip] {
			if resource == tpuResource {
				given[h]++
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(given), func(a, b podmap.Holder) int {
		return slices.Compare([]string{a.Namespace, a.Pod, a.Container}, []string{b.Namespace, b.Pod, b.Container})
	})
	for _, h := range order {
		p.own(acceleratorRequest, given[h], h.Container, h.Namespace, h.Pod, tpuResource)
	}
	for _, v := range c.vendors {
		r, ok := v.Source.(device.ServiceReporter)
		if !ok {
			continue
		}
		counts := map[[2]string]float64{}
		for _, s := range r.Services() {
			for _, state := range []device.ServiceState{device.ServiceFailed, device.ServiceIdle, device.ServiceServing} {
				counts[[2]string{s.Name, string(state)}] += flag(s.State == state)
			}
		}
		for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
			p.own(services, counts[key], c.cfg.Node, key[0], key[1])
		}
	}
}

// TPUCoverage of GKE's metrics by a reading: how many it gives, and the names of
// those that it lacks.
func TPUCoverage(r device.Reading) (gives int, lacks []string) {
	for _, f := range gkeFamilies {
		if _, ok := r.Get(f.field); ok {
			gives++
		} else {
			lacks = append(lacks, f.name)
		}
	}
	return gives, lacks
}

func tpuFieldName(f device.Field) string {
	for _, row := range gkeFamilies {
		if row.field == f {
			return row.name
		}
	}
	for _, row := range tpuOwns {
		if row.field == f {
			return row.name
		}
	}
	return ""
}

// writeGKE writes the catalog of GKE's families.
func writeGKE(b *strings.Builder) {
	b.WriteString("\n## TPUs, in the words of GKE's device plugin\n\nThe families of a container are there while one holds the chip. `accelerator_id` is the node's name and the number of the chip's device node. What a chip can't tell is absent.\n\n")
	b.WriteString("| metric | type | unit | labels | what | where it comes from |\n|---|---|---|---|---|---|\n")
	for _, f := range gkeFamilies {
		fmt.Fprintf(b, "| `%s` | gauge | %s | `%s` | %s | %s |\n", f.name, f.unit, strings.Join(gkeContainer, "` `"), f.help, f.route)
	}
	for _, f := range gkeFamilies {
		fmt.Fprintf(b, "| `%s_node` | gauge | %s | `%s` | %s | the same |\n", f.name, f.unit, strings.Join(gkeNode, "` `"), f.help)
	}
	a := acceleratorRequest
	fmt.Fprintf(b, "| `%s` | gauge | 1 | `%s` | %s | the kubelet |\n", a.name, strings.Join(a.labels, "` `"), a.help)
}
