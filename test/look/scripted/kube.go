package scripted

import "strings"

// exportKube emits what kube-state-metrics exports about a cluster.
func (f *Fleet) exportKube(e *emitter, c *cluster) {
	e.target("kube-state-metrics", "kube-state-metrics:8080")
	for _, n := range c.nodes {
		resource := strings.NewReplacer("/", "_", ".", "_").Replace(resourceOf[n.model])
		for status, v := range map[string]float64{"true": 1, "false": 0, "unknown": 0} {
			e.add("kube_node_status_condition", v, "node", n.name, "condition", "Ready", "status", status)
		}
		e.add("kube_node_spec_unschedulable", number(f.happens(n.cordonedFor, e.at)), "node", n.name)
		if n.tainted {
			e.add("kube_node_spec_taint", 1, "node", n.name, "key", "maintenance", "value", "planned", "effect", "NoSchedule")
		}
		e.add("kube_node_labels", 1, append(nodeLabels(c, n), "node", n.name)...)
		devices, healthy := 0.0, 0.0
		for _, d := range n.devices {
			if len(d.migInstances) == 0 {
				devices++
				healthy += 1 - number(f.happens(d.lostFor, e.at) || f.happens(d.hungFor, e.at))
			}
		}
		for name, v := range map[string]float64{"cpu": 192, "memory": 2 << 40, resource: devices} {
			e.add("kube_node_status_capacity", v, "node", n.name, "resource", name, "unit", "integer")
			if name == resource {
				v = healthy
			}
			e.add("kube_node_status_allocatable", v, "node", n.name, "resource", name, "unit", "integer")
		}
		requests := map[string]float64{}
		for _, d := range n.devices {
			if d.job != nil {
				requests[d.job.namespace+"/"+d.podName()+"/"+d.job.kind+"/"+d.job.name]++
			}
		}
		for key, v := range requests {
			p := strings.Split(key, "/")
			pod := []string{"namespace", p[0], "pod", p[1], "uid", uuid(p[1], 0)}
			e.add("kube_pod_container_resource_requests", v, append(pod, "container", "main", "node", n.name, "resource", resource, "unit", "integer")...)
			e.add("kube_pod_status_phase", 1, append(pod, "phase", "Running")...)
			e.add("kube_pod_owner", 1, append(pod, "owner_kind", p[2], "owner_name", p[3], "owner_is_controller", "true")...)
		}
	}
	if !c.bridged {
		e.add("kube_daemonset_status_desired_number_scheduled", float64(len(c.nodes)), "namespace", "plimsoll-exporter", "daemonset", "plimsoll-exporter")
	}
}

// nodeLabels returns the labels of a node: its model and its place.
func nodeLabels(c *cluster, n *node) []string {
	zone := []string{"label_topology_kubernetes_io_zone", c.name + "-a"}
	if n.model == v5e {
		return append(zone, "label_cloud_google_com_gke_tpu_accelerator", n.model, "label_cloud_google_com_gke_tpu_topology", "4x4", "label_cloud_google_com_gke_nodepool", "slices")
	}
	return append(zone, "label_nvidia_com_gpu_product", n.model, "label_cloud_google_com_gce_topology_block", c.name+"-block-1")
}
