package shape

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// unmeasuredLabels returns the node labels that a pod set requires and by which no default query
// selects: a zone, for example. A cluster may have room, but not on nodes with this label. What the
// gate's own fit query measures is not known, so none is returned for such a gate.
func unmeasuredLabels(spec *corev1.PodSpec, p PodSet, opts Options) []string {
	if p.DevicesPerPod == 0 || opts.AllDevices {
		return nil
	}
	required := maps.Clone(spec.NodeSelector)
	if required == nil {
		required = map[string]string{}
	}
	pinned := requiredLabels(spec.Affinity)
	for _, key := range affinityKeys(spec.Affinity) {
		if _, ok := required[key]; !ok {
			required[key] = pinned[key] // empty if several values are possible
		}
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(required)) {
		value := required[key]
		_, isOwn := opts.OwnLabels[key]
		isModel := p.Model != "" && slices.Contains(opts.ModelFrom, key)
		isOfFlavor := value != "" && p.FlavorLabels[key] == value // the worker's Kueue has quota for it
		if !isOwn && !isModel && !isOfFlavor && key != tpuTopologyLabel && key != corev1.LabelOSStable {
			names = append(names, "node label "+key)
		}
	}
	return names
}

// affinityKeys returns the keys of all node labels in a required node affinity.
func affinityKeys(affinity *corev1.Affinity) []string {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	var keys []string
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}
