package shape

import (
	"strconv"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// tpuTopologyLabel is the node label of GKE with the shape of a TPU slice, such as 4x4.
const tpuTopologyLabel = "cloud.google.com/gke-tpu-topology"

// levelCluster is the level of pod sets that require no topology: a cluster is one domain.
const levelCluster = "cluster"

// varRequiredTopology is the variable with the level of a required topology, or levelCluster.
const varRequiredTopology = "required_topology"

// fitsTopology reports whether a gate's own fit query reads the required topology.
func fitsTopology(fit string) bool { return strings.Contains(fit, "$"+varRequiredTopology) }

// fitsTPUSlices reports whether a gate's own fit query reads the topology of a TPU slice.
func fitsTPUSlices(fit string) bool {
	return strings.Contains(fit, "$"+varNodeSelector+strings.Map(variableRune, tpuTopologyLabel))
}

// requiredTopologyOf returns the level that a pod set requires.
func requiredTopologyOf(set *kueue.PodSet) string {
	if request := set.TopologyRequest; request != nil && request.Required != nil {
		return *request.Required
	}
	return levelCluster
}

// unmeasuredTopology returns what a pod set requests of the places of its nodes, unless the gate
// fits it. A gate that counts pods by node does not know which nodes are near each other. The
// worker's Kueue and its scheduler test that.
func unmeasuredTopology(set *kueue.PodSet, p PodSet, opts Options) []string {
	if p.DevicesPerPod == 0 {
		return nil
	}
	var names []string
	for _, level := range requiredLevels(set.TopologyRequest) {
		if level != p.RequiredTopology {
			names = append(names, "required topology "+level)
		}
	}
	if topology := p.NodeSelector[tpuTopologyLabel]; topology != "" && chipsOf(topology) != p.DevicesPerPod && !opts.TPUSlices {
		names = append(names, "slice of TPU topology "+topology)
	}
	return names
}

// requiredLevels returns the topology levels within which Kueue has to place all pods of a pod
// set, or each slice of them.
func requiredLevels(request *kueue.PodSetTopologyRequest) []string {
	if request == nil {
		return nil
	}
	var levels []string
	for _, level := range []*string{request.Required, request.PodSetSliceRequiredTopology} {
		if level != nil {
			levels = append(levels, *level)
		}
	}
	for _, layer := range request.PodsetSliceRequiredTopologyConstraints {
		levels = append(levels, layer.Topology)
	}
	return levels
}

// chipsOf returns the number of chips of a TPU topology, or 0 if the text is none.
func chipsOf(topology string) int64 {
	chips := int64(1)
	for part := range strings.SplitSeq(topology, "x") {
		n, err := strconv.ParseInt(part, 10, 32)
		if err != nil {
			return 0
		}
		chips *= n
	}
	return chips
}
