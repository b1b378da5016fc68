package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// nodeRequirement is a demand on the nodes of the workload's pods that Kueue would not
// overrule.
type nodeRequirement struct {
	// origin completes "the node selector x=y" in a message; empty = the pods themselves.
	origin string
	labels map[string]string
}

// requirementsOnNodes are those of the pods, of the assigned flavors and of the other
// checks' updates. Kueue merges them with the gate's.
func (o *Situation) RequirementsOnNodes() []nodeRequirement {
	var list []nodeRequirement
	for i := range o.Workload.Spec.PodSets {
		list = append(list, nodeRequirement{labels: o.Workload.Spec.PodSets[i].Template.Spec.NodeSelector})
	}
	for _, name := range slices.Sorted(maps.Keys(o.Request.FlavorLabels)) {
		list = append(list, nodeRequirement{origin: " of flavor " + name, labels: o.Request.FlavorLabels[name]})
	}
	for _, check := range o.Workload.Status.AdmissionChecks {
		for _, update := range check.PodSetUpdates {
			if !slices.Contains(o.Checks.Own, string(check.Name)) {
				list = append(list, nodeRequirement{origin: " of admission check " + string(check.Name), labels: update.NodeSelector})
			}
		}
	}
	return list
}

// pinsPods reports whether the gate pins the workload's pods to the chosen cluster. With
// MultiKueue it must not.
func (o *Situation) pinsPods() bool {
	return o.Checks.MultiKueue == "" && o.Gate.Spec.PodSetUpdates != nil
}

// nodeSelectorFor is the node selector that stands for a cluster.
func (o *Situation) nodeSelectorFor(cluster string) map[string]string {
	labels := map[string]string{}
	for key, value := range o.Gate.Spec.PodSetUpdates.NodeSelector {
		labels[key] = strings.ReplaceAll(value, "{cluster}", cluster)
	}
	return labels
}

// contradiction names the requirement that keeps the pods off a cluster; empty = none. Kueue
// would not start the job.
func (o *Situation) contradiction(cluster string) string {
	labels := o.nodeSelectorFor(cluster)
	for _, r := range o.Request.NodeRequirements {
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			if value, ok := r.labels[key]; ok && value != labels[key] {
				return fmt.Sprintf("does not match the node selector %s=%s%s", key, value, r.origin)
			}
		}
	}
	return ""
}
