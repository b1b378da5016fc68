package ledger

import "plimsoll.dev/plimsoll/operator/internal/admission/shape"

// Quota is quota of a worker's queue: for devices of one kind, and for CPU and memory of whatever pods.
type Quota struct {
	Devices  int64
	Requests shape.Requests
}

// QuotaOf returns the quota that pod sets use. The devices are those suitable for p.
func QuotaOf(sets []shape.PodSet, p shape.PodSet) Quota {
	q := Quota{Devices: SharedDevices(sets, p)}
	for i := range sets {
		q.Requests = q.Requests.Plus(sets[i].Requests, sets[i].Pods)
	}
	return q
}

// Plus returns the sum.
func (q Quota) Plus(other Quota) Quota {
	return Quota{q.Devices + other.Devices, q.Requests.Plus(other.Requests, 1)}
}

// Minus returns the difference, which may be negative.
func (q Quota) Minus(other Quota) Quota {
	return Quota{q.Devices - other.Devices, shape.Requests{MilliCPU: q.Requests.MilliCPU - other.Requests.MilliCPU, Memory: q.Requests.Memory - other.Requests.Memory}}
}

// Queue is where workloads draw quota on the hub.
type Queue struct {
	// Cluster is the ClusterQueue.
	Cluster string `json:"cluster,omitempty"`
	// Local is the namespace/name of the LocalQueue. The LocalQueue of a worker has the same, and its ClusterQueue may have
	// another name than the hub's.
	Local string `json:"local,omitempty"`
}

// QueueOf returns the queue of a workload.
func QueueOf(f *shape.Facts) Queue {
	return Queue{Cluster: f.ClusterQueue, Local: f.Namespace + "/" + f.Queue}
}
