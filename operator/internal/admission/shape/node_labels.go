package shape

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// NodeLabel is a label that a node must have, with one of the values.
type NodeLabel struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
}

func (l NodeLabel) String() string { return "node label " + l.Key }

func (l NodeLabel) equal(other NodeLabel) bool {
	return l.Key == other.Key && slices.Equal(l.Values, other.Values)
}

// IsOfFlavor reports whether the ResourceFlavor has the label: the worker's Kueue has quota for such nodes.
func (p PodSet) IsOfFlavor(l NodeLabel) bool {
	return len(l.Values) == 1 && p.FlavorLabels[l.Key] == l.Values[0]
}

// nodeLabelsOf returns the labels that nodes must have for a pod set by its node selector and required affinity,
// and names those of other forms, such as Exists, which the default query does not test. What the gate's own fit
// query measures is not known, so both are empty for such a gate. The label of the model, the gate's own and those of
// TPU slices and operating systems are left out.
func nodeLabelsOf(spec *corev1.PodSpec, p PodSet, opts Options) (tested []NodeLabel, unmeasured []string) {
	if p.DevicesPerPod == 0 || opts.AllDevices {
		return nil, nil
	}
	isOther := func(key string) bool {
		_, isOwn := opts.OwnLabels[key]
		return isOwn || p.Model != "" && slices.Contains(opts.ModelFrom, key) || key == tpuTopologyLabel || key == corev1.LabelOSStable
	}
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if !isOther(key) {
			tested = append(tested, NodeLabel{key, []string{spec.NodeSelector[key]}})
		}
	}
	affinity, others := affinityLabels(spec.Affinity)
	for _, l := range affinity {
		if !isOther(l.Key) && !slices.ContainsFunc(tested, l.equal) {
			tested = append(tested, l)
		}
	}
	for _, key := range others {
		if !isOther(key) {
			unmeasured = append(unmeasured, fmt.Sprint(NodeLabel{Key: key}))
		}
	}
	return tested, unmeasured
}

// affinityLabels returns the labels that all terms of a required node affinity restrict to the same values, and the
// keys of its other requirements.
func affinityLabels(affinity *corev1.Affinity) (labels []NodeLabel, others []string) {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil, nil
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i, term := range terms {
		for _, e := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			switch l := (NodeLabel{e.Key, slices.Sorted(slices.Values(e.Values))}); {
			case !isInEach(terms, l):
				others = append(others, e.Key)
			case i == 0 && !slices.ContainsFunc(labels, l.equal):
				labels = append(labels, l)
			}
		}
	}
	return labels, slices.Compact(slices.Sorted(slices.Values(others)))
}

// isInEach reports whether each term restricts the label to these values.
func isInEach(terms []corev1.NodeSelectorTerm, l NodeLabel) bool {
	for _, term := range terms {
		if !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Operator == corev1.NodeSelectorOpIn && l.equal(NodeLabel{e.Key, slices.Sorted(slices.Values(e.Values))})
		}) {
			return false
		}
	}
	return true
}
