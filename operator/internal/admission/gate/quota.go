package gate

import (
	"math"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// quotaOfRunning returns the quota that workloads use. The devices are those suitable for p.
func quotaOfRunning(running []*ledger.Running, p shape.PodSet) (sum ledger.Quota) {
	for _, r := range running {
		sum = sum.Plus(ledger.QuotaOf(r.PodSets, p))
	}
	return sum
}

// podsWithQuota returns for how many pods of shape p the worker's queue has quota beside what is taken, and the resource
// with the least. It is negative if more is taken than the queue has, and +Inf if no quota is known.
func (m *ShapeMetrics) podsWithQuota(p shape.PodSet, taken ledger.Quota) (pods float64, resource string) {
	pods = math.Inf(1)
	limit := func(name string, quota Number, unit float64, taken, perPod int64) {
		if !quota.Known || perPod == 0 {
			return
		}
		if n := math.Floor((math.Round(quota.Value*unit) - float64(taken)) / float64(perPod)); n < pods {
			pods, resource = n, name
		}
	}
	limit(p.Resource, m.Quota, 1, taken.Devices, p.DevicesPerPod)
	limit("cpu", m.CPUQuota, 1000, taken.Requests.MilliCPU, p.Requests.MilliCPU)
	limit("memory", m.MemoryQuota, 1, taken.Requests.Memory, p.Requests.Memory)
	return pods, resource
}
