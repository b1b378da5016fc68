package metrics

import "time"

// Snapshot is the state of one cluster at one time, as its exporters, kube-state-metrics and Kueue
// report it.
type Snapshot struct {
	// Cluster is the value of the label cluster: the name of the ManagedCluster.
	Cluster string
	// CollectedAt is the time of the last collection of the exporters. Zero means the time of the
	// scrape.
	CollectedAt time.Time
	Nodes       []Node
	Pods        []Pod
	// Queues are empty if Kueue runs without metrics.enableClusterQueueResources.
	Queues []Queue
	// Cohorts are those with a quota of their own or with a parent. Other cohorts follow from Queues.
	Cohorts []Cohort
	// Objects are namespaces, LocalQueues and other objects that prerequisites of gates name.
	Objects []Object
	// Extra samples are stored as they are, for example those of a lying exporter. The label cluster is
	// added if they do not have it. A series that the store would export itself is then left out. In
	// ClosedForm, the results of rules do not depend on them.
	Extra []Sample
	// Failed are the targets that do not respond to this scrape.
	Failed []Part
}

// Node of a cluster.
type Node struct {
	Name   string
	Labels map[string]string
	// Model of the devices, with dashes, such as NVIDIA-H100-80GB-HBM3.
	Model string
	// Resource is the name of the extended resource, such as nvidia.com/gpu. It is empty for a node
	// without accelerators, which has no exporter.
	Resource string
	// Devices of the node, those that pods hold, and those that the kubelet reports as unhealthy. An
	// unhealthy device is not held.
	Devices, Allocated, Unhealthy int64
	// Claimed devices are free ones that the exporter reports, and that do not exist.
	Claimed int64
	// CPU and CPUUsed are the allocatable CPU and the requests of all pods, in milli-cores. Memory and
	// MemoryUsed are the same in MiB. The requests that Pods do not have are those of a system pod.
	CPU, CPUUsed, Memory, MemoryUsed int64
	// Taint is the key of a taint with the effect NoSchedule. Empty means none.
	Taint string
	// Ready is the condition Ready. Cordoned is spec.unschedulable.
	Ready, Cordoned bool
	// Silent means that the exporter of the node does not respond.
	Silent bool
	// KubeletDown means that the exporter gets no allocations from the kubelet.
	KubeletDown bool
	// NoOwners means that the exporter runs without --kubernetes-pod-owners, and OwnersUnreachable
	// that its last request to the API server failed.
	NoOwners, OwnersUnreachable bool
	// CollectedAt replaces Snapshot.CollectedAt for this node, unless it is zero.
	CollectedAt time.Time
	// CriticalXIDs is the number of critical XID events of the first device of the node.
	CriticalXIDs int64
}

// Pod of a cluster.
type Pod struct {
	Namespace, Name string
	// Node is empty until the pod is scheduled.
	Node string
	// Devices that the pod requests of Resource, and that it holds once it is scheduled.
	Resource, Model string
	Devices         int64
	// CPU in milli-cores and Memory in MiB are the requests of the pod.
	CPU, Memory int64
	// OwnerKind and OwnerName are the topmost controller. They are empty for a pod without one.
	OwnerKind, OwnerName string
	// Phase is the phase of the pod. Empty means Running. A finished pod holds no devices.
	Phase string
	// Utilization of the pod's devices, 0 to 1.
	Utilization float64
}

func (p *Pod) isFinished() bool { return p.Phase == "Succeeded" || p.Phase == "Failed" }

func (p *Pod) holdsDevices() bool { return p.Node != "" && p.Devices > 0 && !p.isFinished() }

// Queue is the quota of a ClusterQueue for one flavor and resource.
type Queue struct {
	Name, Cohort, Flavor, Resource string
	// Nominal and Reserved are devices, or milli-cores of the resource cpu.
	Nominal, Reserved int64
	// BorrowingLimit is 0 for a queue without a limit, and negative for one that must not borrow.
	BorrowingLimit int64
}

// Cohort is a cohort with a parent, or its own quota for one flavor and resource.
type Cohort struct {
	Name, Parent     string
	Flavor, Resource string
	Nominal          int64
}

// Kinds of an Object.
const (
	KindNamespace             = "Namespace"
	KindLocalQueue            = "LocalQueue"
	KindServiceAccount        = "ServiceAccount"
	KindConfigMap             = "ConfigMap"
	KindSecret                = "Secret"
	KindPersistentVolumeClaim = "PersistentVolumeClaim"
)

// Object is an object that a workload may refer to. A namespace has no Namespace.
type Object struct {
	Kind, Namespace, Name string
	// ClusterQueue of a LocalQueue. Empty means that kube-state-metrics does not report it.
	ClusterQueue string
}

// Sample is a sample of a series.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Part is a part of the targets of a cluster.
type Part string

// Parts of a cluster. NodeExporter returns another one.
const (
	All       Part = "all"
	Exporters Part = "exporters"
	KubeState Part = "kube-state-metrics"
	Kueue     Part = "kueue"
)

// NodeExporter is the exporter of one node.
func NodeExporter(node string) Part { return Part("exporter/" + node) }

func (p Part) includes(other Part) bool {
	const exporter = "exporter/"
	return p == All || p == other || p == Exporters && len(other) > len(exporter) && other[:len(exporter)] == exporter
}
