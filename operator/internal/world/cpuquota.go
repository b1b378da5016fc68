package world

import (
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// cpuFlavor is the flavor of the CPU of all queues.
const cpuFlavor = "default"

// cpuLeft is the CPU that a queue may still reserve for a workload, in milli-cores. It returns false if the queue has no
// quota for CPU.
func (k *kueueControl) cpuLeft(queue string, wl *kueue.Workload) (int64, bool) {
	cq := k.quota.queues[queue]
	if cq.cpu == 0 {
		return 0, false
	}
	left := cq.cpu - k.cpuUsed(queue)
	if old := k.replaced(wl, queue); old != nil {
		left += cpuOf(old)
	}
	return left, true
}

// cpuUsed is the CPU that a queue has given away.
func (k *kueueControl) cpuUsed(queue string) (sum int64) {
	for _, key := range k.workloads.keys() {
		if wl := k.workloads.get(key); wl.Status.Admission != nil && string(wl.Status.Admission.ClusterQueue) == queue && !kueuestate.IsFinished(wl) {
			sum += cpuOf(wl)
		}
	}
	return sum
}

// cpuOf is the CPU that a workload holds.
func cpuOf(wl *kueue.Workload) (sum int64) {
	for i, a := range wl.Status.Admission.PodSetAssignments {
		sum += cpuOfPod(&wl.Spec.PodSets[i].Template.Spec) * int64(min(*a.Count, wl.Spec.PodSets[i].Count))
	}
	return sum
}

// cpuOfPod is the CPU that Kueue counts for a pod.
func cpuOfPod(pod *corev1.PodSpec) int64 {
	var containers, init, sidecars int64
	for i := range pod.Containers {
		containers += pod.Containers[i].Resources.Requests.Cpu().MilliValue()
	}
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		if n := c.Resources.Requests.Cpu().MilliValue(); c.RestartPolicy != nil {
			sidecars += n
		} else {
			init = max(init, n)
		}
	}
	return max(containers, init) + sidecars
}

// permitsCPU reports whether a queue without workloads, or with this much CPU given away, has quota for the CPU of so
// many devices of a job.
func (q *quota) permitsCPU(j *Job, devices, used int64) bool {
	cq := q.queues[q.of(j.Queue)]
	return cq.cpu == 0 || used+effectiveCPU(j)*devices/j.Devices <= cq.cpu
}

// makeCPUQuotas gives queues of some workers less quota for CPU than their nodes have, and enough for each job.
// Preemption for CPU is not modeled.
func makeCPUQuotas(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x63707571))} // of its own, so that the rest of a seed's world stays the same
	if !g.chance(.5) || slices.ContainsFunc(s.Queues, func(q Queue) bool { return q.WithinQueue != "" || q.ReclaimCohort != "" }) {
		return
	}
	largest := int64(0)
	full := complete(*s)
	for i := range full.Jobs {
		largest = max(largest, effectiveCPU(&full.Jobs[i])*full.Jobs[i].allPods())
	}
	if largest == 0 {
		return
	}
	for i := range s.Clusters {
		if g.chance(.6) {
			s.Clusters[i].CPUQuota = oneOf(g, largest, largest*3/2, largest*2)
		}
	}
}
