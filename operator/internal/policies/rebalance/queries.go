package rebalance

import "fmt"

// Labels of the samples of the queries, in addition to those of the cluster and the owner.
const (
	LabelNode     = "node"
	LabelModel    = "model"
	LabelResource = "resource"
)

// FreeQuery returns the query for the free devices of each node, over the recording rule that the
// gate's default fit query reads. label is that of the cluster.
func FreeQuery(label string) string {
	return fmt.Sprintf(`sum by (%s, node, resource, model) (node_resource_model:plimsoll_free_devices:placeable)`, label)
}

// Resources of UnrequestedQuery: thousandths of cores, and bytes.
const (
	ResourceCPU    = "cpu"
	ResourceMemory = "memory"
)

// UnrequestedQuery returns the query for what pods may still request of each node, over the recording rule that the
// gate's default fit query reads.
func UnrequestedQuery(label string) string {
	return fmt.Sprintf(`floor(1000 * min by (%[1]s, node, resource) (node:kube_unrequested:placeable{resource="cpu"}) + 1e-6)`+
		` or min by (%[1]s, node, resource) (node:kube_unrequested:placeable{resource="memory"})`, label)
}

// AllocatedQuery returns the query for the number of devices that the pods of each owner hold on each node.
// When the pods are gone, these devices are free only on a node that accepts pods, and a node with
// unhealthy devices may lose one of them.
func AllocatedQuery(label string) string {
	return fmt.Sprintf(`count by (%[1]s, node, model, namespace, owner_kind, owner_name) (device:plimsoll_allocation:info)`+
		` and on (%[1]s, node) (node:plimsoll_placeable:bool == 1)`+
		` and on (%[1]s, node) node:plimsoll_sample_timestamp_seconds:trusted`+
		` unless on (%[1]s, node) (node_resource_model_state:plimsoll_devices:min{state="unhealthy"} > 0)`, label)
}
