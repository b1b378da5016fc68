package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// NodeRequirement is a demand on the nodes of the workload's pods that Kueue would not
// overrule.
type NodeRequirement struct {
	// origin completes "the node selector x=y" in a message; empty = the pods themselves.
	origin string
	labels map[string]string
}

// RequirementsOnNodes are those of the workload's pods, of the assigned flavors and of the updates of checks that
// are not the gate's own. Kueue merges them with the gate's.
func RequirementsOnNodes(wl *kueue.Workload, own []string, flavors map[string]kueue.ResourceFlavorSpec) []NodeRequirement {
	var list []NodeRequirement
	for i := range wl.Spec.PodSets {
		list = append(list, NodeRequirement{labels: wl.Spec.PodSets[i].Template.Spec.NodeSelector})
	}
	for _, name := range slices.Sorted(maps.Keys(flavors)) {
		list = append(list, NodeRequirement{origin: " of flavor " + name, labels: flavors[name].NodeLabels})
	}
	for _, check := range wl.Status.AdmissionChecks {
		for _, update := range check.PodSetUpdates {
			if !slices.Contains(own, string(check.Name)) {
				list = append(list, NodeRequirement{origin: " of admission check " + string(check.Name), labels: update.NodeSelector})
			}
		}
	}
	return list
}

// pinsPods reports whether the gate pins the workload's pods to the chosen cluster. With
// MultiKueue it must not.
func pinsPods(s *Situation) bool {
	return s.Dispatch() == Local && s.Gate.Spec.PodSetUpdates != nil
}

// nodeSelectorFor is the node selector that stands for a cluster.
func (g Gate) nodeSelectorFor(cluster string) map[string]string {
	labels := map[string]string{}
	for key, value := range g.Spec.PodSetUpdates.NodeSelector {
		labels[key] = strings.ReplaceAll(value, "{cluster}", cluster)
	}
	return labels
}

// contradiction names the requirement that keeps the pods off nodes with labels; empty = none. Kueue
// would not start the job.
func (r Request) contradiction(labels map[string]string) string {
	for _, n := range r.NodeRequirements {
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			if value, ok := n.labels[key]; ok && value != labels[key] {
				return key + "=" + value + n.origin
			}
		}
	}
	return ""
}

// requiredPins are the values that the workload's own requirements demand of labels with which a gate pins
// pods to a cluster.
func (r Request) requiredPins(labels map[string]string) []string {
	var pins []string
	for key := range labels {
		for _, n := range r.NodeRequirements {
			if value, ok := n.labels[key]; ok {
				pins = append(pins, key+"="+value)
			}
		}
	}
	slices.Sort(pins)
	return slices.Compact(pins)
}

func limitOfPins(s *Situation) string {
	if !pinsPods(s) {
		return ""
	}
	return fmt.Sprintf("%q", s.Request.requiredPins(s.Gate.Spec.PodSetUpdates.NodeSelector))
}

func excludeByPins(s *Situation, c *gate.Candidate) {
	if !pinsPods(s) {
		return
	}
	if selector := s.Request.contradiction(s.Gate.nodeSelectorFor(c.Name)); selector != "" {
		c.Exclude(gate.RejectPins, selector)
	}
}

// podSetUpdates of a Ready check. Where no later write records the chosen cluster, the pods
// carry it as an annotation; the gate's own updates pin them to it.
func podSetUpdates(s *Situation, d gate.Decision) []kueue.PodSetUpdate {
	if d.State != gate.Ready || len(d.Order) == 0 || !readyDecidesPlacement(s) {
		return nil
	}
	var updates []kueue.PodSetUpdate
	for i := range s.Workload.Spec.PodSets {
		update := kueue.PodSetUpdate{Name: s.Workload.Spec.PodSets[i].Name, Annotations: map[string]string{v1alpha1.ClusterAnnotation: d.Order[0]}}
		if pinsPods(s) {
			update.NodeSelector, update.Tolerations = s.Gate.nodeSelectorFor(d.Order[0]), s.Gate.Spec.PodSetUpdates.Tolerations
		}
		updates = append(updates, update)
	}
	return updates
}
