package collector

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// sharingNotes explain the metrics of MIG instances and of shared devices.
const sharingNotes = `Metrics of a MIG instance:

- The labels ` + "`GPU_I_PROFILE` and `GPU_I_ID` precede `Hostname`, and `UUID`" + ` is that of the device.
- Memory metrics are the instance's own. They replace those of the device.
- The activity of engines and memory (` + "`DCGM_FI_PROF_…`" + `) is measured by GPU instance.
- Temperature, clocks, faults and other state are those of the device. Only the instances have these metrics.
- With ` + "`--devices=g`" + ` only the device has metrics.

A device can be shared by several containers. The column *shared* says how the series of a metric are written then:

- ` + "`each`" + `: one series for each holder. All have the same value, such as a temperature or the utilization of the device. Averages by pod are meaningful, sums are not.
- ` + "`once`" + `: a single series for quantities and their limits (memory, power, energy, traffic), so that sums count them once. It has the pod's labels if all holders are in the same pod, otherwise no holder. Power, energy and traffic of a device in MIG mode are those of the device, without an instance.

All metrics of one quantity follow the same rule, so that ` + "`DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)`" + ` has a result for every device. With ` + "`hpc_job`" + `, every metric has a series for each job.

`

// sharing returns the value of the column shared.
func (f dcgmField) sharing() string {
	if f.isQuantity() {
		return "once"
	}
	return "each"
}

// WriteMarkdown writes the catalog of all metrics.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Metrics\n\nGenerated from the exporter's table by `make generate`.\n\n")
	writeDCGMCatalog(&b)
	writeRenamedCatalog(&b)
	writeGKECatalog(&b)
	b.WriteString("\n## Plimsoll's metrics\n\n`model` is the device's product name with blanks replaced by `-`, as in the node labels of GPU feature discovery.\n\n| metric | type | labels | description |\n|---|---|---|---|\n")
	for _, m := range plimsollMetrics {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", m.name, strings.ToLower(m.kind.String()), strings.Join(m.labels, "` `"), m.help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLabels writes the labels of dcgm-exporter's metrics in a dialect. Readers of the
// catalog expect the labels of a table in one line above it.
func writeLabels(b *strings.Builder, dialect string) {
	var names []string
	for _, l := range labelFields {
		name := l.name
		if current, ok := currentNames[name]; ok && dialect == Dialect49 {
			name = current.name
		}
		names = append(names, name)
	}
	device := slices.Clone(dcgmLabelNames)
	if dialect == Dialect49 {
		device[len(device)-1] = "hostname"
	}
	fmt.Fprintf(b, "Labels: `%s`; `GPU_I_PROFILE` and `GPU_I_ID` for a MIG instance; the driver version as `%s`; `container` `namespace` `pod` if a container holds the device, and `dra_*` if a resource claim allocated it; with options `pod_uid`, `vgpu`, `hpc_job` and the labels of the pod; with a counter file also `%s`.\n\n",
		strings.Join(device, "` `"), names[0], strings.Join(names[1:], "` `"))
}

func writeDCGMCatalog(b *strings.Builder) {
	b.WriteString("## dcgm-exporter's metrics\n\n")
	writeLabels(b, DialectLegacy)
	b.WriteString("The labels of the counter file, which include the driver version, precede those of the holder. Each of the two groups is sorted. A metric is absent if the device does not report the value.\n\n")
	b.WriteString(sharingNotes)
	b.WriteString("| metric | type | unit | shared | description | NVML source |\n|---|---|---|---|---|---|\n")
	for _, f := range dcgmFields {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", f.name, strings.ToLower(f.kind.String()), f.unit, f.sharing(), f.help, f.route)
	}
	x := lastXIDField
	fmt.Fprintf(b, "| `%s` | gauge | %s | each | %s Labels `err_code` and `err_msg`, sorted among those of the holder. | %s |\n", x.name, x.unit, x.help, x.route)
	for _, e := range totalEvents {
		fmt.Fprintf(b, "| `%s` | %s | %s | each | %s Label `%s`. | %s |\n", e.name, strings.ToLower(e.kind.String()), e.unit, e.help, e.label, e.route)
	}
	for _, e := range countedEvents {
		fmt.Fprintf(b, "| `%s` | %s | %s | each | %s Labels `%s` and `window_size_in_ms`. | %s |\n", e.name, strings.ToLower(e.kind.String()), e.unit, e.help, e.label, e.route)
	}
}

// writeRenamedCatalog writes the names and units with --compat=4.9.
func writeRenamedCatalog(b *strings.Builder) {
	b.WriteString("\n## Names with --compat=4.9\n\n")
	writeLabels(b, Dialect49)
	b.WriteString("A counter file can use these names with every value of `--compat`. Metrics that are not listed keep their name and unit.\n\n")
	b.WriteString("| metric | unit | older name |\n|---|---|---|\n")
	for _, f := range append(slices.Clone(dcgmFields), lastXIDField) {
		if to, ok := currentNames[f.name]; ok {
			fmt.Fprintf(b, "| `%s` | %s | `%s` |\n", to.name, cmp.Or(to.unit, f.unit), f.name)
		}
	}
}

// writeGKECatalog writes the metrics of GKE's device plugin.
func writeGKECatalog(b *strings.Builder) {
	b.WriteString("\n## Metrics of GKE's TPU device plugin\n\nThe metrics with container labels exist while a container holds the chip. `accelerator_id` is the node's name followed by the number of the chip's device node. A chip without a driver has no device node and none of these metrics. A metric is absent if the chip does not report the value.\n\n")
	b.WriteString("| metric | type | unit | labels | description | source |\n|---|---|---|---|---|---|\n")
	for _, f := range gkeFamilies {
		fmt.Fprintf(b, "| `%s` | gauge | %s | `%s` | %s | %s |\n", f.name, f.unit, strings.Join(gkeContainerLabels, "` `"), f.help, f.route)
	}
	for _, f := range gkeFamilies {
		fmt.Fprintf(b, "| `%s_node` | gauge | %s | `%s` | %s | as above |\n", f.name, f.unit, strings.Join(gkeNodeLabels, "` `"), f.help)
	}
	a := acceleratorRequest
	fmt.Fprintf(b, "| `%s` | gauge | 1 | `%s` | %s | kubelet |\n", a.name, strings.Join(a.labels, "` `"), a.help)
}
