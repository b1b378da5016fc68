package metrics

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/timestamp"
)

// Label values of the targets.
const (
	exporterJob     = "plimsoll-exporter"
	kubeStateJob    = "kube-state-metrics"
	kueueJob        = "kueue"
	exporterDaemon  = "plimsoll-exporter"
	systemNamespace = "kube-system"
	// role is the role of Kueue's only replica.
	role = "leader"
	// maxPods is the number of pods that a kubelet takes by default.
	maxPods = 110
)

var podPhases = []string{"Pending", "Succeeded", "Failed", "Unknown", "Running"}

// invalidInLabel matches the characters that kube-state-metrics replaces in names of labels and
// resources.
var invalidInLabel = regexp.MustCompile(`[^a-zA-Z0-9_]`)

func (s *Store) sanitize(name string) string {
	v, ok := s.sanitized[name]
	if !ok {
		v = invalidInLabel.ReplaceAllString(name, "_")
		s.sanitized[name] = v
	}
	return v
}

// deviceIDs returns the uuids of the devices of a node.
func (s *Store) deviceIDs(cluster, node string, n int64) []string {
	key := cluster + "/" + node
	ids := s.devices[key]
	for int64(len(ids)) < n {
		ids = append(ids, "GPU-"+cluster+"-"+node+"-"+strconv.Itoa(len(ids)))
	}
	s.devices[key] = ids
	return ids[:n]
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(at int64) float64 { return float64(at) / 1000 }

// collectedAt is the time of the last collection of a node's exporter, in milliseconds.
func collectedAt(snap *Snapshot, n *Node, at int64) int64 {
	switch {
	case !n.CollectedAt.IsZero():
		return timestamp.FromTime(n.CollectedAt)
	case !snap.CollectedAt.IsZero():
		return timestamp.FromTime(snap.CollectedAt)
	}
	return at
}

// deviceCounts are the devices of a node by state.
type deviceCounts struct{ allocatable, allocated, unhealthy, free float64 }

func countDevices(n *Node) deviceCounts {
	return deviceCounts{float64(n.Devices + n.Claimed), float64(n.Allocated), float64(n.Unhealthy), float64(max(0, n.Devices+n.Claimed-n.Unhealthy-n.Allocated))}
}

// exportNode exports what the exporter of a node exports. pods are those on the node.
func (s *Store) exportNode(e *export, snap *Snapshot, n *Node, pods []*Pod) {
	if !n.KubeletDown {
		c := countDevices(n)
		e.add("plimsoll_node_devices", c.allocatable, "node", n.Name, "resource", n.Resource, "model", n.Model, "state", "allocatable")
		e.add("plimsoll_node_devices", c.allocated, "node", n.Name, "resource", n.Resource, "model", n.Model, "state", "allocated")
		e.add("plimsoll_node_devices", c.unhealthy, "node", n.Name, "resource", n.Resource, "model", n.Model, "state", "unhealthy")
		e.add("plimsoll_node_devices", 0, "node", n.Name, "resource", n.Resource, "model", n.Model, "state", "unknown")
		e.add("plimsoll_node_devices", c.free, "node", n.Name, "resource", n.Resource, "model", n.Model, "state", "free")
	}
	e.add("plimsoll_exporter_last_collection_timestamp_seconds", seconds(collectedAt(snap, n, e.at)), "node", n.Name)
	e.add("plimsoll_exporter_kubelet_up", number(!n.KubeletDown), "node", n.Name)
	e.add("plimsoll_exporter_source_up", 1, "node", n.Name, "source", "nvml")
	if !n.NoOwners {
		e.add("plimsoll_exporter_api_server_reachable", number(!n.OwnersUnreachable), "node", n.Name)
	}
	ids, next := s.deviceIDs(snap.Cluster, n.Name, max(n.Devices, 0)), 0
	for i, id := range ids {
		e.add("plimsoll_device_lost", 0, "node", n.Name, "uuid", id, "gpu", strconv.Itoa(i), "model", n.Model)
		e.add("plimsoll_device_hung", 0, "node", n.Name, "uuid", id, "gpu", strconv.Itoa(i), "model", n.Model)
		e.add("plimsoll_device_failed", 0, "node", n.Name, "uuid", id, "gpu", strconv.Itoa(i), "model", n.Model)
	}
	if n.CriticalXIDs > 0 && len(ids) > 0 {
		e.add("plimsoll_xid_total", float64(n.CriticalXIDs), "node", n.Name, "uuid", ids[0], "gpu", "0", "model", n.Model, "xid", "79", "severity", "critical")
	}
	for _, p := range pods {
		if !p.holdsDevices() {
			continue
		}
		if kind, name := owner(p); !n.NoOwners {
			e.add("plimsoll_pod_owner_info", 1, "node", n.Name, "namespace", p.Namespace, "pod", p.Name, "pod_uid", p.Name, "owner_kind", kind, "owner_name", name)
		}
		for range p.Devices {
			if next == len(ids) || n.KubeletDown {
				break
			}
			id, gpu := ids[next], strconv.Itoa(next)
			next++
			e.add("plimsoll_device_owner_info", 1, "node", n.Name, "uuid", id, "gpu", gpu, "model", n.Model, "namespace", p.Namespace, "pod", p.Name, "container", "main")
			exportUtilization(e, n, id, gpu, p)
		}
	}
	for ; next < len(ids); next++ {
		exportUtilization(e, n, ids[next], strconv.Itoa(next), &Pod{})
	}
}

// exportUtilization exports the utilization of a device by the name that NVIDIA's devices and others
// have. p is the holder of the device.
func exportUtilization(e *export, n *Node, id, gpu string, p *Pod) {
	if !isNVIDIA(n) {
		e.add("plimsoll_device_busy_ratio", p.Utilization, "node", n.Name, "uuid", id, "gpu", gpu, "model", n.Model)
		return
	}
	kv := []string{"gpu", gpu, "UUID", id, "modelName", n.Model, "Hostname", n.Name}
	if p.Name != "" {
		kv = append(kv, "namespace", p.Namespace, "pod", p.Name, "container", "main")
	}
	e.add("DCGM_FI_DEV_GPU_UTIL", math.Round(100*p.Utilization), kv...)
}

func isNVIDIA(n *Node) bool { return strings.HasPrefix(n.Resource, "nvidia.com/") }

// owner returns the topmost owner of a pod, which is the pod itself if it has none.
func owner(p *Pod) (kind, name string) {
	if p.OwnerKind == "" {
		return "Pod", p.Name
	}
	return p.OwnerKind, p.OwnerName
}

// exportKube exports what kube-state-metrics exports.
func (s *Store) exportKube(e *export, snap *Snapshot, pods map[string][]*Pod) {
	exporters := 0
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if n.Resource != "" {
			exporters++
		}
		s.exportKubeNode(e, n)
		if cpu, memory := systemRequests(n, pods[n.Name]); cpu > 0 || memory > 0 {
			s.exportPod(e, &Pod{Namespace: systemNamespace, Name: "system-" + n.Name, Node: n.Name, CPU: cpu, Memory: memory})
		}
	}
	e.add("kube_daemonset_status_desired_number_scheduled", float64(exporters), "namespace", "plimsoll-exporter", "daemonset", exporterDaemon)
	// Its own pod always runs.
	s.exportPod(e, &Pod{Namespace: systemNamespace, Name: "kube-state-metrics"})
	for i := range snap.Pods {
		s.exportPod(e, &snap.Pods[i])
	}
	for _, o := range snap.Objects {
		switch o.Kind {
		case KindNamespace:
			e.add("kube_namespace_status_phase", 1, "namespace", o.Name, "phase", "Active")
			e.add("kube_namespace_status_phase", 0, "namespace", o.Name, "phase", "Terminating")
		case KindServiceAccount:
			e.add("kube_serviceaccount_info", 1, "namespace", o.Namespace, "serviceaccount", o.Name)
		case KindConfigMap:
			e.add("kube_configmap_info", 1, "namespace", o.Namespace, "configmap", o.Name)
		case KindSecret:
			e.add("kube_secret_info", 1, "namespace", o.Namespace, "secret", o.Name)
		case KindLocalQueue:
			if o.ClusterQueue != "" {
				e.add("kube_localqueue_info", 1, "namespace", o.Namespace, "localqueue", o.Name, "cluster_queue", o.ClusterQueue)
			}
		case KindPersistentVolumeClaim:
			e.add("kube_persistentvolumeclaim_info", 1, "namespace", o.Namespace, "persistentvolumeclaim", o.Name)
		}
	}
}

func (s *Store) exportKubeNode(e *export, n *Node) {
	e.add("kube_node_status_condition", number(n.Ready), "node", n.Name, "condition", "Ready", "status", "true")
	e.add("kube_node_status_condition", number(!n.Ready), "node", n.Name, "condition", "Ready", "status", "false")
	e.add("kube_node_status_condition", 0, "node", n.Name, "condition", "Ready", "status", "unknown")
	e.add("kube_node_spec_unschedulable", number(n.Cordoned), "node", n.Name)
	if n.Taint != "" {
		e.add("kube_node_spec_taint", 1, "node", n.Name, "key", n.Taint, "value", "", "effect", "NoSchedule")
	}
	if n.Cordoned {
		e.add("kube_node_spec_taint", 1, "node", n.Name, "key", "node.kubernetes.io/unschedulable", "value", "", "effect", "NoSchedule")
	}
	if !n.Ready {
		e.add("kube_node_spec_taint", 1, "node", n.Name, "key", "node.kubernetes.io/not-ready", "value", "", "effect", "NoExecute")
	}
	e.add("kube_node_labels", 1, s.nodeLabels(n)...)
	if n.CPU > 0 {
		e.exportAmounts(n, "cpu", "core", float64(n.CPU)/1000, float64(n.CPU)/1000)
	}
	if n.Memory > 0 {
		e.exportAmounts(n, "memory", "byte", float64(n.Memory)*(1<<20), float64(n.Memory)*(1<<20))
	}
	e.exportAmounts(n, "pods", "integer", maxPods, maxPods)
	if n.Resource != "" {
		e.exportAmounts(n, s.sanitize(n.Resource), "integer", float64(n.Devices), float64(n.Devices-n.Unhealthy))
	}
}

func (e *export) exportAmounts(n *Node, resource, unit string, capacity, allocatable float64) {
	e.add("kube_node_status_capacity", capacity, "node", n.Name, "resource", resource, "unit", unit)
	e.add("kube_node_status_allocatable", allocatable, "node", n.Name, "resource", resource, "unit", unit)
}

// nodeLabels returns the labels of kube_node_labels, sorted. The label of GPU feature discovery is the
// model.
func (s *Store) nodeLabels(n *Node) []string {
	kv := []string{"node", n.Name}
	const product = "nvidia.com/gpu.product"
	if _, ok := n.Labels[product]; !ok && isNVIDIA(n) {
		kv = append(kv, "label_nvidia_com_gpu_product", n.Model)
	}
	fixed := len(kv)
	for name, v := range n.Labels {
		kv = append(kv, "label_"+s.sanitize(name), v)
	}
	sortPairs(kv[fixed:])
	return kv
}

// sortPairs sorts names with their values.
func sortPairs(kv []string) {
	pairs := make([][2]string, 0, len(kv)/2)
	for i := 0; i < len(kv); i += 2 {
		pairs = append(pairs, [2]string{kv[i], kv[i+1]})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	for i, p := range pairs {
		kv[2*i], kv[2*i+1] = p[0], p[1]
	}
}

// systemRequests returns the requests on a node that its pods do not have.
func systemRequests(n *Node, pods []*Pod) (cpu, memory int64) {
	cpu, memory = n.CPUUsed, n.MemoryUsed
	for _, p := range pods {
		if !p.isFinished() {
			cpu, memory = cpu-p.CPU, memory-p.Memory
		}
	}
	return max(0, cpu), max(0, memory)
}

func (s *Store) exportPod(e *export, p *Pod) {
	phase := cmp.Or(p.Phase, "Running")
	for _, other := range podPhases {
		e.add("kube_pod_status_phase", number(other == phase), "namespace", p.Namespace, "pod", p.Name, "uid", p.Name, "phase", other)
	}
	if p.Node != "" {
		e.add("kube_pod_info", 1, "namespace", p.Namespace, "pod", p.Name, "uid", p.Name, "node", p.Node)
	}
	if p.OwnerKind != "" {
		e.add("kube_pod_owner", 1, "namespace", p.Namespace, "pod", p.Name, "uid", p.Name, "owner_kind", p.OwnerKind, "owner_name", p.OwnerName, "owner_is_controller", "true")
	}
	if p.CPU > 0 {
		e.exportRequest(p, "cpu", "core", float64(p.CPU)/1000)
	}
	if p.Memory > 0 {
		e.exportRequest(p, "memory", "byte", float64(p.Memory)*(1<<20))
	}
	if p.Devices > 0 {
		e.exportRequest(p, s.sanitize(p.Resource), "integer", float64(p.Devices))
	}
}

func (e *export) exportRequest(p *Pod, resource, unit string, v float64) {
	e.add("kube_pod_container_resource_requests", v, "namespace", p.Namespace, "pod", p.Name, "uid", p.Name, "container", "main", "node", p.Node, "resource", resource, "unit", unit)
}
