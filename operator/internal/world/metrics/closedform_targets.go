package metrics

import (
	"slices"
	"strings"
)

// state is what a target exported at a time. It is not up after a failed scrape.
type state[T any] struct {
	at   int64
	up   bool
	data T
}

// timeline has the last states of a target. The rules may be evaluated for a time shortly before the
// last scrape.
type timeline[T any] struct{ states []state[T] }

const maxStates = 4

func (l *timeline[T]) add(s state[T]) {
	if l.states = append(l.states, s); len(l.states) > maxStates {
		l.states = slices.Delete(l.states, 0, 1)
	}
}

// visible returns the state that Prometheus finds at a time. It is not up if there is none.
func (l *timeline[T]) visible(at int64) state[T] {
	for _, s := range slices.Backward(l.states) {
		if s.at <= at {
			if s.up && at-s.at < lookback {
				return s
			}
			break
		}
	}
	return state[T]{}
}

// exporterData is what the exporter of a node exports about devices.
type exporterData struct {
	collected       float64 // Unix time in seconds, as the rules have it
	resource, model string
	hasDevices      bool
	deviceCounts
	devices []deviceData // only if the store records rules about devices
}

// kubeData is what kube-state-metrics exports.
type kubeData struct {
	nodes  map[string]*kubeNode
	names  []string             // of the nodes, in the order of the snapshot
	owners map[podName]podOwner // of pods with an owner
	// hasExporter means that a node is one for the exporter: all nodes with accelerators are.
	hasExporter bool
	// hasAccelerators means that a node has a resource of accelerators, which may be 0.
	hasAccelerators bool
}

type kubeNode struct {
	isPlaceable  bool
	accelerators float64
	// capacity and allocatable are the devices of the resource that the node's exporter reports.
	capacity, allocatable float64
	total, unrequested    []amount
	// domains of the node by level, only if the store records them.
	domains []levelDomain
}

// add adds a resource with what is allocatable and requested of it.
func (n *kubeNode) add(resource string, allocatable, requested float64) {
	n.total = append(n.total, amount{resource, allocatable})
	n.unrequested = append(n.unrequested, amount{resource, max(0, allocatable-requested)})
}

// amount of a resource, by its name in kube-state-metrics.
type amount struct {
	resource string
	value    float64
}

// isAccelerator reports whether the rules count a resource of kube-state-metrics as accelerators.
func isAccelerator(sanitized string) bool {
	rest, isAMD := strings.CutPrefix(sanitized, "amd_com_")
	return strings.HasPrefix(sanitized, "nvidia_com_gpu") || strings.HasPrefix(sanitized, "nvidia_com_mig") || sanitized == "google_com_tpu" ||
		isAMD && (rest == "gpu" || len(rest) == len("spx_nps1") && rest[1:7] == "px_nps")
}

// kubeDataOf returns what the rules read of kube-state-metrics.
func (s *Store) kubeDataOf(snap *Snapshot, pods map[string][]*Pod) kubeData {
	data := kubeData{nodes: map[string]*kubeNode{}, owners: map[podName]podOwner{}}
	for i := range snap.Pods {
		if p := &snap.Pods[i]; p.OwnerKind != "" {
			data.owners[podName{p.Namespace, p.Name}] = podOwner{p.OwnerKind, p.OwnerName}
		}
	}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		node := &kubeNode{isPlaceable: n.Ready && !n.Cordoned && (n.Taint == "" || slices.Contains(toleratedTaints, n.Taint))}
		data.nodes[n.Name], data.names = node, append(data.names, n.Name)
		if s.domains {
			node.domains = domainsOf(n)
		}
		cpu, memory := systemRequests(n, pods[n.Name])
		devices, running := int64(0), int64(0)
		if cpu > 0 || memory > 0 {
			running++ // the pod with these requests
		}
		for _, p := range pods[n.Name] {
			if !p.isFinished() {
				running++
				cpu, memory = cpu+p.CPU, memory+p.Memory
				if p.Resource == n.Resource {
					devices += p.Devices
				}
			}
		}
		if n.CPU > 0 {
			node.add("cpu", float64(n.CPU)/1000, float64(cpu)/1000)
		}
		if n.Memory > 0 {
			node.add("memory", float64(n.Memory)*(1<<20), float64(memory)*(1<<20))
		}
		node.add("pods", maxPods, float64(running))
		if n.Resource == "" {
			continue
		}
		data.hasExporter = true
		node.capacity, node.allocatable = float64(n.Devices), float64(n.Devices-n.Unhealthy)
		resource := s.sanitize(n.Resource)
		if isAccelerator(resource) {
			node.accelerators, data.hasAccelerators = float64(n.Devices), true
		}
		if slices.Contains([]string{"nvidia_com_gpu", "google_com_tpu", "amd_com_gpu"}, resource) {
			node.add(resource, float64(n.Devices-n.Unhealthy), float64(devices))
		}
	}
	return data
}

// kueueData is what the rules record of Kueue.
type kueueData struct{ quotas []quota }

type quota struct {
	queue, flavor, resource string
	unreserved              float64
	nominalUnreserved       float64
	limit                   float64
	inCohort                bool
}

func kueueDataOf(snap *Snapshot) kueueData {
	var data kueueData
	totals, parents := cohortTotals(snap), cohortParents(snap)
	for i := range snap.Queues {
		q := &snap.Queues[i]
		own := q.amount(q.Nominal) - q.amount(q.Reserved)
		r := quota{queue: q.Name, flavor: q.Flavor, resource: q.Resource, inCohort: q.Cohort != "", nominalUnreserved: own, unreserved: own, limit: q.amount(q.Nominal)}
		if r.inCohort {
			r.unreserved, r.limit = r.unreserved+borrowingLimit(q), r.limit+borrowingLimit(q)
		}
		for _, c := range totals {
			if c.name == q.Cohort && c.flavor == q.Flavor && c.resource == q.Resource && parents[c.name] == "" && c.quota > 0 { // Kueue exports no total of zero
				r.unreserved, r.limit = min(r.unreserved, c.quota-c.reserved), min(r.limit, c.quota)
			}
		}
		data.quotas = append(data.quotas, r)
	}
	return data
}

// limit leaves out the devices of a node that kube-state-metrics does not report, and returns their number.
func (k *kubeData) limit(node string, c *deviceCounts) (excess float64) {
	if !k.hasAccelerators {
		return 0
	}
	n := k.nodes[node]
	if n == nil {
		n = &kubeNode{}
	}
	before := *c
	c.allocatable, c.free = min(c.allocatable, max(0, n.capacity)), min(c.free, max(0, n.allocatable))
	return max(before.allocatable-c.allocatable, before.free-c.free)
}
