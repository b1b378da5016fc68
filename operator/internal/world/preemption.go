package world

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// preemptFor evicts workloads so that a pending one gets quota, by Kueue's classic rules: victims of
// the same queue by priority, and of queues of the cohort that borrow while the workload stays within
// its queue's nominal quota. It reports whether enough of them exist.
func (k *kueueControl) preemptFor(key types.NamespacedName, wl *kueue.Workload, queue string, used map[string]map[string]int64) bool {
	cq := k.quota.queues[queue]
	if cq.spec.WithinQueue == "" && cq.spec.ReclaimCohort == "" {
		return false
	}
	old := k.replaced(wl, queue)
	for _, f := range k.quota.flavors {
		need := int64(0)
		fits := true
		if old != nil {
			need = -requestOf(old)[f.name]
			fits = need < 0
		}
		for i := range wl.Spec.PodSets {
			p := &wl.Spec.PodSets[i]
			each := devicesOf(p, f.resource)
			if model := p.Template.Spec.NodeSelector[modelLabel]; each == 0 || model != "" && model != f.model {
				fits = false
			}
			need += each * int64(p.Count)
		}
		if !fits {
			continue
		}
		victims, enough := k.victims(wl, queue, f.name, need, used)
		if !enough {
			continue
		}
		for _, v := range victims {
			k.preempt(key, v)
		}
		if used[queue] == nil {
			used[queue] = map[string]int64{}
		}
		used[queue][f.name] += need // other queues do not take what its victims return
		return true
	}
	return false
}

// victims are the workloads whose quota a pending one may take, as few as suffice. Those that are
// being evicted already count and are not returned.
func (k *kueueControl) victims(wl *kueue.Workload, queue, flavor string, need int64, used map[string]map[string]int64) (list []types.NamespacedName, enough bool) { //nolint:gocyclo // the steps of Kueue's own preemptor, in its order
	type candidate struct {
		key   types.NamespacedName
		wl    *kueue.Workload
		queue string
		size  int64
	}
	cq := k.quota.queues[queue]
	var all []candidate
	for _, key := range k.workloads.keys() {
		v := k.workloads.get(key)
		if v.Status.Admission == nil || kueuestate.IsFinished(v) || v.Name == kueuestate.ReplacedSlice(wl) && v.Namespace == wl.Namespace {
			continue
		}
		from := string(v.Status.Admission.ClusterQueue)
		size := requestOf(v)[flavor]
		if size == 0 {
			continue
		}
		other := k.quota.queues[from]
		if kueuestate.IsEvicted(v) || from == queue && mayPreempt(cq.spec.WithinQueue, wl, v) ||
			from != queue && other != nil && cq.spec.Cohort != "" && other.spec.Cohort == cq.spec.Cohort && mayPreempt(cq.spec.ReclaimCohort, wl, v) {
			all = append(all, candidate{key, v, from, size})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(compareBool(kueuestate.IsEvicted(b.wl), kueuestate.IsEvicted(a.wl)), compareBool(a.queue == queue, b.queue == queue),
			cmp.Compare(priorityOf(a.wl), priorityOf(b.wl)), b.wl.CreationTimestamp.Compare(a.wl.CreationTimestamp.Time))
	})
	after := map[string]map[string]int64{}
	for q, byFlavor := range used {
		after[q] = map[string]int64{flavor: byFlavor[flavor]}
	}
	var chosen []candidate
	for _, c := range all {
		if k.quota.available(queue, flavor, after) >= need {
			break
		}
		if c.queue != queue && !kueuestate.IsEvicted(c.wl) {
			withinNominal := after[queue][flavor]+need <= cq.nominal[flavor]
			if !withinNominal || k.quota.borrows(c.queue, flavor, after) <= 0 {
				continue
			}
		}
		after[c.queue][flavor] -= c.size
		chosen = append(chosen, c)
	}
	if k.quota.available(queue, flavor, after) < need {
		return nil, false
	}
	// Return those that turn out not to be needed, the last ones first.
	for i := len(chosen) - 1; i >= 0; i-- {
		c := chosen[i]
		after[c.queue][flavor] += c.size
		if k.quota.available(queue, flavor, after) >= need {
			chosen = slices.Delete(chosen, i, i+1)
			continue
		}
		after[c.queue][flavor] -= c.size
	}
	for _, c := range chosen {
		if !kueuestate.IsEvicted(c.wl) {
			list = append(list, c.key)
		}
	}
	return list, true
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func mayPreempt(policy string, wl, victim *kueue.Workload) bool {
	switch policy {
	case "Any":
		return true
	case "LowerPriority":
		return priorityOf(victim) < priorityOf(wl)
	case "LowerOrNewerEqualPriority":
		return priorityOf(victim) < priorityOf(wl) || priorityOf(victim) == priorityOf(wl) && victim.CreationTimestamp.After(wl.CreationTimestamp.Time)
	}
	return false
}

func (k *kueueControl) preempt(by, victim types.NamespacedName) {
	k.world.preempted(k.name, victim, by)
	k.world.note("%s preempts %s for %s", k.name, victim.Name, by.Name)
	k.evict(victim, kueue.WorkloadEvictedByPreemption, "Preempted to accommodate "+by.Name, func(wl *kueue.Workload) {
		k.condition(wl, kueue.WorkloadPreempted, true, "InClusterQueue", "")
	})
}
