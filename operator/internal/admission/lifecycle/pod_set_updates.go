package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// NodeRequirement is a demand on the nodes of the workload's pods that Kueue would not
// overrule.
type NodeRequirement struct {
	// origin completes "the node selector x=y" in a message; empty = the pods themselves.
	origin string
	labels map[string]string
}

// RequirementsOnNodes are those of the pods, of the assigned flavors and of the other
// checks' updates. Kueue merges them with the gate's.
func (s *Situation) RequirementsOnNodes() []NodeRequirement {
	var list []NodeRequirement
	for i := range s.Workload.Spec.PodSets {
		list = append(list, NodeRequirement{labels: s.Workload.Spec.PodSets[i].Template.Spec.NodeSelector})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Request.FlavorLabels)) {
		list = append(list, NodeRequirement{origin: " of flavor " + name, labels: s.Request.FlavorLabels[name]})
	}
	for _, check := range s.Workload.Status.AdmissionChecks {
		for _, update := range check.PodSetUpdates {
			if !slices.Contains(s.Checks.Own, string(check.Name)) {
				list = append(list, NodeRequirement{origin: " of admission check " + string(check.Name), labels: update.NodeSelector})
			}
		}
	}
	return list
}

// pinsPods reports whether the gate pins the workload's pods to the chosen cluster. With
// MultiKueue it must not.
func (s *Situation) pinsPods() bool {
	return s.Dispatch() == Local && s.Gate.Spec.PodSetUpdates != nil
}

// nodeSelectorFor is the node selector that stands for a cluster.
func (s *Situation) nodeSelectorFor(cluster string) map[string]string {
	labels := map[string]string{}
	for key, value := range s.Gate.Spec.PodSetUpdates.NodeSelector {
		labels[key] = strings.ReplaceAll(value, "{cluster}", cluster)
	}
	return labels
}

// contradiction names the requirement that keeps the pods off a cluster; empty = none. Kueue
// would not start the job.
func (s *Situation) contradiction(cluster string) string {
	labels := s.nodeSelectorFor(cluster)
	for _, r := range s.Request.NodeRequirements {
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			if value, ok := r.labels[key]; ok && value != labels[key] {
				return key + "=" + value + r.origin
			}
		}
	}
	return ""
}

// requiredPins are the values that the workload's own requirements demand of the labels with which
// the gate pins pods to a cluster.
func (s *Situation) requiredPins() []string {
	var pins []string
	for key := range s.Gate.Spec.PodSetUpdates.NodeSelector {
		for _, r := range s.Request.NodeRequirements {
			if value, ok := r.labels[key]; ok {
				pins = append(pins, key+"="+value)
			}
		}
	}
	slices.Sort(pins)
	return slices.Compact(pins)
}

func limitOfPins(s *Situation) string {
	if !s.pinsPods() {
		return ""
	}
	return fmt.Sprintf("%q", s.requiredPins())
}

func excludeByPins(s *Situation, c *gate.Candidate) {
	if !s.pinsPods() {
		return
	}
	if selector := s.contradiction(c.Name); selector != "" {
		c.Exclude(gate.RejectPins, selector)
	}
}
