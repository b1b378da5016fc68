package world

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// quota is the ClusterQueues of one Kueue.
type quota struct {
	queues map[string]*clusterQueue
	// flavors are all device models in the order in which Kueue tries them.
	flavors []flavor
	// cohorts are the quotas of Cohorts themselves, by flavor. measured is that of a CapacityPolicy.
	cohorts  map[string]map[string]int64
	measured string
	// localQueues are the ClusterQueues of LocalQueues that have other names than these.
	localQueues map[string]string
}

// of is the ClusterQueue of a LocalQueue.
func (q *quota) of(localQueue string) string { return cmp.Or(q.localQueues[localQueue], localQueue) }

// flavor is a ResourceFlavor: the nodes with one device model.
type flavor struct{ name, model, resource string }

// nodeLabels are those of the flavor's nodes.
func (f *flavor) nodeLabels() map[string]string {
	if f.model == "" {
		return nil
	}
	return map[string]string{modelLabel: f.model}
}

type clusterQueue struct {
	spec    *Queue
	nominal map[string]int64 // by flavor
	cpu     int64            // in milli-cores; zero = no quota
	stop    kueue.StopPolicy
	// sticky is the workload that preempted last. It stays first, so that it gets what it freed.
	sticky types.NamespacedName
	// inactive: a check of the queue is not active, or missing.
	inactive bool
}

// newQuota is the quota of a hub's queues.
func newQuota(queues []Queue, flavors []flavor) *quota {
	q := &quota{queues: map[string]*clusterQueue{}, flavors: flavors, cohorts: map[string]map[string]int64{}}
	for i := range queues {
		q.queues[queues[i].Name] = &clusterQueue{spec: &queues[i], nominal: queues[i].byFlavor(queues[i].Nominal), stop: kueue.None}
	}
	return q
}

// takes reports whether the queues have quota for the devices of a job, if nothing is used. A CapacityPolicy gives
// them quota for what its clusters have.
func (q *quota) takes(j *Job, devices int64) bool {
	if q.measured != "" && q.queues[j.Queue].spec.Cohort == q.measured {
		return true
	}
	for _, f := range q.flavors {
		if f.resource == j.Resource && (j.Model == "" || j.Model == f.model) && q.available(q.of(j.Queue), f.name, nil) >= devices {
			return q.permitsCPU(j, devices, 0)
		}
	}
	return false
}

// FlavorOf is the name of the ResourceFlavor of a device model.
func FlavorOf(model string) string { return strings.ToLower(model) }

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// available are the devices of a flavor that a queue may still reserve, by borrowing as well.
func (q *quota) available(queue, flavor string, used map[string]map[string]int64) int64 {
	cq := q.queues[queue]
	own := cq.nominal[flavor] - used[queue][flavor]
	if cq.spec.Cohort == "" {
		return own
	}
	pool := q.cohorts[cq.spec.Cohort][flavor]
	for name, other := range q.queues {
		if other.spec.Cohort == cq.spec.Cohort {
			pool += other.nominal[flavor] - used[name][flavor]
		}
	}
	if limit := cq.spec.BorrowingLimit; limit > 0 {
		pool = min(pool, own+limit)
	}
	return pool
}

// borrows reports how much a queue holds above its nominal quota.
func (q *quota) borrows(queue, flavor string, used map[string]map[string]int64) int64 {
	return used[queue][flavor] - q.queues[queue].nominal[flavor]
}

// schedule runs the scheduler soon.
func (k *kueueControl) schedule() {
	if k.scheduling {
		return
	}
	k.scheduling = true
	k.loop().After(k.world.dice.between(50*time.Millisecond, 150*time.Millisecond, k.name+" scheduler"), func() {
		k.scheduling = false
		if !k.paused {
			k.runScheduler()
		}
	})
}

// runScheduler reserves quota for pending workloads and preempts. As in Kueue, the first workload of each
// queue competes with those of the others: those within the nominal quota of their queue come before those
// that borrow. A workload that preempts keeps its queue waiting.
func (k *kueueControl) runScheduler() {
	used := k.workloads.usage()
	waiting := k.pendingWorkloads()
	for len(waiting) > 0 {
		queue := k.nextQueue(waiting, used)
		key := waiting[queue][0]
		if k.admit(key, queue, used) {
			waiting[queue] = waiting[queue][1:]
		} else {
			waiting[queue] = nil
		}
		if len(waiting[queue]) == 0 {
			delete(waiting, queue)
		}
	}
}

// admit reserves quota for a workload or preempts others for it. It reports whether the next workload of
// the queue may have its turn.
func (k *kueueControl) admit(key types.NamespacedName, queue string, used map[string]map[string]int64) bool {
	wl := k.workloads.get(key)
	a := k.assign(wl, queue, used)
	if a == nil {
		cq := k.quota.queues[queue]
		if k.preemptFor(key, wl, queue, used) {
			cq.sticky = key
			return false
		}
		return !cq.spec.StrictFIFO
	}
	if k.assignDomain != nil && !k.assignDomain(key, a) {
		return !k.quota.queues[queue].spec.StrictFIFO
	}
	k.reserve(key, queue, a)
	if now := k.workloads.get(key); now != nil && now.Status.Admission != nil {
		if used[queue] == nil {
			used[queue] = map[string]int64{}
		}
		for flavor, n := range requestOf(now) {
			used[queue][flavor] += n
		}
		k.replaceSlice(now, used)
	}
	return true
}

// nextQueue is the queue whose first workload comes next.
func (k *kueueControl) nextQueue(waiting map[string][]types.NamespacedName, used map[string]map[string]int64) string {
	return slices.MinFunc(slices.Sorted(maps.Keys(waiting)), func(a, b string) int {
		x, y := k.workloads.get(waiting[a][0]), k.workloads.get(waiting[b][0])
		return cmp.Or(compareBool(k.wouldBorrow(x, used), k.wouldBorrow(y, used)), compareRank(x, y))
	})
}

// pendingWorkloads are the workloads that wait for quota, by queue, in the order of each queue.
func (k *kueueControl) pendingWorkloads() map[string][]types.NamespacedName {
	lists := map[string][]types.NamespacedName{}
	for _, key := range k.workloads.pending() {
		wl := k.workloads.get(key)
		queue := k.quota.of(string(wl.Spec.QueueName))
		cq := k.quota.queues[queue]
		if cq == nil || cq.stop != kueue.None || cq.inactive || !kueuestate.IsActive(wl) || !wl.DeletionTimestamp.IsZero() || k.isDeactivationTarget(wl) ||
			apimeta.IsStatusConditionFalse(wl.Status.Conditions, kueue.WorkloadRequeued) ||
			wl.Status.RequeueState != nil && wl.Status.RequeueState.RequeueAt != nil {
			continue
		}
		if k.checksOf != nil && len(wl.Status.AdmissionChecks) != len(k.checksOf(queue)) {
			continue // not synced yet
		}
		lists[queue] = append(lists[queue], key)
	}
	for queue, list := range lists {
		sticky := k.quota.queues[queue].sticky
		slices.SortStableFunc(list, func(a, b types.NamespacedName) int {
			return cmp.Or(compareBool(b == sticky, a == sticky), compareRank(k.workloads.get(a), k.workloads.get(b)))
		})
	}
	return lists
}

// compareRank orders the workloads of a queue.
func compareRank(a, b *kueue.Workload) int {
	return cmp.Or(cmp.Compare(priorityOf(b), priorityOf(a)), queueTime(a).Compare(queueTime(b)))
}

// wouldBorrow reports whether no flavor has nominal quota of the workload's queue left for it.
func (k *kueueControl) wouldBorrow(wl *kueue.Workload, used map[string]map[string]int64) bool {
	queue := k.quota.of(string(wl.Spec.QueueName))
	cq := k.quota.queues[queue]
	if cq == nil || cq.spec.Cohort == "" {
		return false
	}
	left := k.leftFor(wl, queue, func(flavor string) int64 { return cq.nominal[flavor] - used[queue][flavor] })
	for i := range wl.Spec.PodSets {
		p := &wl.Spec.PodSets[i]
		if _, ok := assignPodSet(p, p.Count, k.quota.flavors, left); !ok {
			return true
		}
	}
	return false
}

func priorityOf(wl *kueue.Workload) int32 {
	if wl.Spec.Priority == nil {
		return 0
	}
	return *wl.Spec.Priority
}

// queueTime is the time by which Kueue orders workloads of a priority: that of the creation, or of an
// eviction because pods were not ready.
func queueTime(wl *kueue.Workload) time.Time {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Reason == kueue.WorkloadEvictedByPodsReadyTimeout {
		return c.LastTransitionTime.Time
	}
	return wl.CreationTimestamp.Time
}

// assign finds a flavor for each pod set, with fewer pods if the job permits it; nil = no quota.
func (k *kueueControl) assign(wl *kueue.Workload, queue string, used map[string]map[string]int64) []kueue.PodSetAssignment {
	left := k.leftFor(wl, queue, func(flavor string) int64 { return k.quota.available(queue, flavor, used) })
	if cpu, hasQuota := k.cpuLeft(queue, wl); hasQuota {
		left[cpuFlavor] = cpu
	}
	var list []kueue.PodSetAssignment
	for i := range wl.Spec.PodSets {
		p := &wl.Spec.PodSets[i]
		least := p.Count
		if p.MinCount != nil {
			least = *p.MinCount
		}
		a, ok := assignPodSet(p, least, k.quota.flavors, left)
		if !ok {
			return nil
		}
		list = append(list, a)
	}
	return list
}

func assignPodSet(p *kueue.PodSet, least int32, flavors []flavor, left map[string]int64) (kueue.PodSetAssignment, bool) {
	model := p.Template.Spec.NodeSelector[modelLabel]
	for _, f := range flavors {
		each := devicesOf(p, f.resource)
		if each == 0 || model != "" && model != f.model {
			continue
		}
		n := min(int64(p.Count), left[f.name]/each)
		cpu := cpuOfPod(&p.Template.Spec)
		if has, isLimited := left[cpuFlavor]; isLimited {
			n = atMost(n, has, cpu)
		}
		if n < int64(least) || n <= 0 {
			continue
		}
		left[f.name] -= n * each
		if _, isLimited := left[cpuFlavor]; isLimited {
			left[cpuFlavor] -= n * cpu
		}
		count := int32(n)
		return kueue.PodSetAssignment{Name: p.Name, Count: &count,
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceName(f.resource): kueue.ResourceFlavorReference(f.name)},
			ResourceUsage: corev1.ResourceList{corev1.ResourceName(f.resource): *resource.NewQuantity(n*each, resource.DecimalSI)}}, true
	}
	return kueue.PodSetAssignment{}, false
}

// modelLabel is the node label with the device model.
const modelLabel = "nvidia.com/gpu.product"

func devicesOf(p *kueue.PodSet, name string) int64 {
	return devicesOfPod(&p.Template.Spec, corev1.ResourceName(name))
}

func (k *kueueControl) reserve(key types.NamespacedName, queue string, assignments []kueue.PodSetAssignment) {
	k.workloads.update(key, func(wl *kueue.Workload) bool {
		if !kueuestate.IsActive(wl) || wl.Status.Admission != nil {
			return false
		}
		wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: assignments}
		if old := k.replaced(wl, queue); old != nil {
			wl.Status.ClusterName = old.Status.ClusterName
		}
		k.condition(wl, kueue.WorkloadQuotaReserved, true, "QuotaReserved", "Quota reserved in ClusterQueue "+queue)
		for _, kind := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted} {
			if apimeta.IsStatusConditionTrue(wl.Status.Conditions, kind) {
				k.condition(wl, kind, false, "QuotaReserved", "")
			}
		}
		if k.checksOf == nil {
			k.condition(wl, kueue.WorkloadAdmitted, true, "Admitted", "")
		}
		return true
	})
}
