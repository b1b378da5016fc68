package gate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// LabelMeasured is the label with the name of what is measured in the result of QueryMeasured.
const LabelMeasured = "resource"

// fitQueries return the queries for the room on nodes. The default counts whole pods: devices, CPU, memory, the
// number of pods, labels and taints of nodes, where a cluster reports them.
func fitQueries(spec *v1alpha1.PlacementGateSpec, label string) []Query {
	const free, unrequested = "node_resource_model:plimsoll_free_devices:placeable", "node:kube_unrequested:placeable"
	const devices, allocatable = "node_resource_model:plimsoll_devices:placeable", "node:kube_allocatable:placeable"
	queries := []Query{{Name: QueryFit, PerShape: true, Expr: spec.Queries.Fit}}
	if spec.Queries.Fit == "" {
		queries = []Query{
			{Name: QueryFit, PerShape: true, of: func(p shape.PodSet) string { return wholePods(label, p, free, unrequested) }},
			{Name: QueryDeviceFit, PerShape: true, Expr: fmt.Sprintf("sum by (%s) (%s)", label, podsByDevices(free))},
			{Name: QueryRequestFit, PerShape: true, of: func(p shape.PodSet) string { return podsByRequests(label, p, free, unrequested) }},
			{Name: QueryMeasured, PerShape: true, ObjectLabel: LabelMeasured, of: func(p shape.PodSet) string { return measured(label, p, devices) }},
		}
	}
	emptyFit := Query{Name: QueryEmptyFit, PerShape: true, Expr: spec.Queries.EmptyFit}
	if emptyFit.Expr == "" {
		emptyFit.of = func(p shape.PodSet) string { return wholePods(label, p, devices, allocatable) }
	}
	return append(queries, emptyFit, Query{Name: QueryLargestNode, PerShape: true, Expr: fmt.Sprintf(`max by (%s) (%s{resource="$resource",model="$model"})`, label, devices)})
}

// podsByDevices returns the expression for the number of pods by the devices of each node.
func podsByDevices(devices string) string {
	return fmt.Sprintf(`floor(%s{resource="$resource",model="$model"} / $devices_per_pod)`, devices)
}

// ofRequests returns the expressions for the number of pods by the CPU and by the memory of each node, if the pods
// request these. Requests of CPU are sums of decimal fractions, hence the millionth of a pod.
func ofRequests(p shape.PodSet, resources string) (list []string) {
	if p.Requests.MilliCPU > 0 {
		list = append(list, resources+`{resource="cpu"} / $cpu_per_pod + 1e-6`)
	}
	if p.Requests.Memory > 0 {
		list = append(list, resources+`{resource="memory"} / $memory_per_pod`)
	}
	return list
}

// smallestOf returns the expression for the smallest of several numbers of pods on each node, rounded down.
func smallestOf(label string, list ...string) string {
	return fmt.Sprintf("floor(min by (%s, node) (\n    %s\n  ))", label, strings.Join(list, "\n      or\n    "))
}

// wholePods returns the expression for the number of pods on nodes by their devices and other resources. It is 0, and not
// absent, for a cluster that has devices on excluded nodes only.
func wholePods(label string, p shape.PodSet, devices, resources string) string {
	each := append(ofRequests(p, resources), fmt.Sprintf("sum by (%s, node) (%s)", label, podsByDevices(devices)), resources+`{resource="pods"}`)
	return fmt.Sprintf(`sum by (%[1]s) (
  %[2]s
    and on (%[1]s, node)
  %[3]s{resource="$resource",model="$model"}%[4]s
    or on (%[1]s, node)
  0 * %[3]s{resource="$resource",model="$model"}
)`, label, smallestOf(label, each...), devices, unlessExcluded(label, p))
}

// podsByRequests returns the expression for the number of pods by CPU and memory alone, on nodes with devices for one.
// It is empty if the pods request neither.
func podsByRequests(label string, p shape.PodSet, devices, resources string) string {
	each := ofRequests(p, resources)
	if len(each) == 0 {
		return ""
	}
	return fmt.Sprintf(`sum by (%[1]s) (
  %[2]s
    and on (%[1]s, node)
  (%[3]s >= 1)%[4]s
)`, label, smallestOf(label, each...), podsByDevices(devices), unlessExcluded(label, p))
}

// unlessExcluded completes an expression: nodes on which kube-scheduler does not place the pods do not count.
func unlessExcluded(cluster string, p shape.PodSet) string {
	return unlessOtherLabels(cluster, p.NodeLabels) + unlessTainted(cluster, p.Tolerations)
}

// deviceTaints are the keys of taints that each pod with devices tolerates: the admission plugin
// ExtendedResourceToleration adds the tolerations on the worker.
const deviceTaints = `nvidia\\.com/gpu|google\\.com/tpu|amd\\.com/gpu`

// unlessTainted completes an expression: nodes with a taint that the pods don't tolerate do not count.
func unlessTainted(cluster string, tolerations []shape.Toleration) string {
	taints := untolerated(tolerations)
	if taints == "" {
		return ""
	}
	return fmt.Sprintf(`
    unless on (%s, node)
  (%s)`, cluster, taints)
}

// untolerated returns the expression for the taints of nodes that pods don't tolerate; empty = the pods tolerate all.
func untolerated(tolerations []shape.Toleration) string {
	const taint = "kube_node_spec_taint"
	var tolerated strings.Builder
	for _, t := range tolerations {
		var matchers []string
		if t.Key != "" {
			matchers = append(matchers, fmt.Sprintf("key=%q", t.Key))
		}
		if !t.AnyValue {
			matchers = append(matchers, fmt.Sprintf("value=%q", t.Value))
		}
		if t.Effect != "" {
			matchers = append(matchers, fmt.Sprintf("effect=%q", t.Effect))
		}
		if len(matchers) == 0 {
			return ""
		}
		fmt.Fprintf(&tolerated, " unless %s{%s}", taint, strings.Join(matchers, ","))
	}
	return fmt.Sprintf(`%s{effect=~"NoSchedule|NoExecute",key!~"%s",key!="$resource"}%s`, taint, deviceTaints, tolerated.String())
}

// unlessOtherLabels completes an expression: nodes without the labels do not count, in clusters that report the label of
// any node. kube-state-metrics reports those that its --metric-labels-allowlist names.
func unlessOtherLabels(cluster string, labels []shape.NodeLabel) string {
	var text strings.Builder
	for _, l := range labels {
		var values []string
		for _, v := range l.Values {
			values = append(values, regexp.QuoteMeta(v))
		}
		name := nodeLabelName(l.Key)
		fmt.Fprintf(&text, `
    unless on (%[1]s, node)
  (kube_node_labels{%[2]s!~%[3]q} and on (%[1]s) kube_node_labels{%[2]s!=""})`, cluster, name, strings.Join(values, "|"))
	}
	return text.String()
}

// taintPrefix begins the names of taints in the result of QueryMeasured.
const taintPrefix = "taint "

// measured returns the expression for what the clusters report of their nodes, by name. Taints that the pods don't
// tolerate are those of nodes with such devices.
func measured(cluster string, p shape.PodSet, devices string) string {
	text := fmt.Sprintf(`group by (%s, %s) (node:kube_unrequested:placeable{resource=~"cpu|memory"})`, cluster, LabelMeasured)
	for _, l := range p.NodeLabels {
		text += fmt.Sprintf("\n  or\n"+`label_replace(group by (%s) (kube_node_labels{%s!=""}), %q, %q, "", "")`, cluster, nodeLabelName(l.Key), LabelMeasured, l.String())
	}
	if taints := untolerated(p.Tolerations); taints != "" {
		text += fmt.Sprintf("\n  or\n"+`group by (%[1]s, %[2]s) (label_replace((%[3]s) and on (%[1]s, node) %[4]s{resource="$resource",model="$model"}, %[2]q, "%[5]s$1", "key", "(.+)"))`,
			cluster, LabelMeasured, taints, devices, taintPrefix)
	}
	return text
}

var (
	notInLabel = regexp.MustCompile(`[^a-zA-Z0-9_]`)
	wordStart  = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// nodeLabelName returns the name that kube-state-metrics gives a label of a node.
func nodeLabelName(key string) string {
	return "label_" + strings.ToLower(wordStart.ReplaceAllString(notInLabel.ReplaceAllString(key, "_"), "${1}_${2}"))
}

// unmeasuredOf returns what a pod set requires of nodes and the cluster does not report, for messages. Before the first
// result of the query, it is unknown, and nothing is returned. For labels of the flavor, the worker's queue has quota.
func (m *ShapeMetrics) unmeasuredOf(p shape.PodSet) (names []string) {
	if m.Measured == nil {
		return nil
	}
	if p.Requests.MilliCPU > 0 && !m.Measured["cpu"] {
		names = append(names, "CPU")
	}
	if p.Requests.Memory > 0 && !m.Measured["memory"] {
		names = append(names, "memory")
	}
	for _, l := range p.NodeLabels {
		if !p.IsOfFlavor(l) && !m.Measured[l.String()] {
			names = append(names, l.String())
		}
	}
	return names
}

// untolerated returns the taints of nodes with such devices that the pods do not tolerate, for messages. Those that
// Kubernetes sets say that a node is not usable by any pod.
func (m *ShapeMetrics) untolerated() string {
	var keys []string
	for name := range m.Measured {
		if key, isTaint := strings.CutPrefix(name, taintPrefix); isTaint && !strings.HasPrefix(key, "node.kubernetes.io/") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}

// unmeasured returns what the pods require of nodes and the cluster does not report.
func (e *evaluation) unmeasured(c *Candidate) []string {
	var names []string
	for i := range min(len(c.Shapes), len(e.facts.PodSets)) {
		names = append(names, c.Shapes[i].unmeasuredOf(e.facts.PodSets[i])...)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// byDevicesNote states how many pods have devices, if CPU, memory, labels or taints of nodes permit fewer.
func (v Verdict) byDevicesNote() string {
	switch {
	case !v.DeviceFit.Known || v.DeviceFit.Value <= v.Fit.Value:
		return ""
	case v.Taints != "":
		return fmt.Sprintf(" (%.0f by devices alone; the pods do not tolerate taint %s)", v.DeviceFit.Value, v.Taints)
	}
	return fmt.Sprintf(" (%.0f by devices alone)", v.DeviceFit.Value)
}

func (v Verdict) unmeasuredNote() string {
	return "does not report " + strings.Join(v.Unmeasured, ", ") + " of its nodes"
}
