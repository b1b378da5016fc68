package kueuestate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Preempts reports whether Kueue preempts workloads for one of the queue.
func Preempts(queue *kueue.ClusterQueue) bool {
	policy := queue.Spec.Preemption
	return policy != nil && (IsPreempting(policy.WithinClusterQueue) || IsPreempting(policy.ReclaimWithinCohort))
}

// IsPreempting reports whether a policy lets Kueue preempt workloads.
func IsPreempting(policy kueue.PreemptionPolicy) bool {
	return policy != "" && policy != kueue.PreemptionPolicyNever
}

// ChecksOfQueue returns the names of the checks of a queue.
func ChecksOfQueue(queue *kueue.ClusterQueue) []string {
	var names []string
	if s := queue.Spec.AdmissionChecksStrategy; s != nil {
		for _, rule := range s.AdmissionChecks {
			names = append(names, string(rule.Name))
		}
	}
	return names
}

// Quotas are the quotas of all ClusterQueues and Cohorts of a hub.
type Quotas struct {
	queues  []kueue.ClusterQueue
	cohorts []kueue.Cohort
}

// QuotasOf returns the quotas of a hub.
func QuotasOf(queues *kueue.ClusterQueueList, cohorts *kueue.CohortList) Quotas {
	return Quotas{queues.Items, cohorts.Items}
}

// Largest returns how much of a resource the workloads of the queue can reserve together, with what it
// can borrow, as Kueue calculates it. It is 0 if cohorts form a cycle, for which Kueue admits nothing.
func (q Quotas) Largest(queue *kueue.ClusterQueue, flavor, resource string) int64 {
	l := limits{quotas: q, flavor: kueue.ResourceFlavorReference(flavor), resource: corev1.ResourceName(resource)}
	if l.isInCycle(queue.Spec.CohortName) {
		return 0
	}
	own := l.of(queue.Spec.ResourceGroups)
	return own.largest(own.nominal, l.largestOf(queue.Spec.CohortName))
}

// limits calculates the quota of one resource in one flavor.
type limits struct {
	quotas   Quotas
	flavor   kueue.ResourceFlavorReference
	resource corev1.ResourceName
}

// limit is the quota of one queue or cohort; nil = unlimited.
type limit struct {
	nominal            int64
	borrowing, lending *int64
}

// of returns the quota that resource groups state. It is 0 for what they do not name.
func (l limits) of(groups []kueue.ResourceGroup) limit {
	for _, group := range groups {
		for _, flavor := range group.Flavors {
			i := slices.IndexFunc(flavor.Resources, func(r kueue.ResourceQuota) bool { return r.Name == l.resource })
			if flavor.Name != l.flavor || i < 0 {
				continue
			}
			quota := limit{nominal: flavor.Resources[i].NominalQuota.Value()}
			if b := flavor.Resources[i].BorrowingLimit; b != nil {
				quota.borrowing = new(b.Value())
			}
			if n := flavor.Resources[i].LendingLimit; n != nil {
				quota.lending = new(n.Value())
			}
			return quota
		}
	}
	return limit{}
}

// kept is what a member with the quota of its subtree does not lend.
func (n limit) kept(subtree int64) int64 {
	if n.lending == nil {
		return 0
	}
	return max(0, subtree-*n.lending)
}

// largest is what a member can reserve of its subtree and of its parent; nil = it has no parent.
func (n limit) largest(subtree int64, parent *int64) int64 {
	if parent == nil {
		return subtree
	}
	available := n.kept(subtree) + *parent
	if n.borrowing != nil {
		available = min(available, subtree+*n.borrowing)
	}
	return available
}

// isInCycle reports whether a cohort is its own ancestor, or has such an ancestor.
func (l limits) isInCycle(name kueue.CohortReference) bool {
	for range len(l.quotas.cohorts) + 1 {
		if name == "" {
			return false
		}
		_, name = l.ofCohort(name)
	}
	return name != ""
}

// largestOf is what the members of a cohort can reserve there; nil = there is no such cohort.
func (l limits) largestOf(name kueue.CohortReference) *int64 {
	if name == "" {
		return nil
	}
	own, parent := l.ofCohort(name)
	return new(own.largest(l.subtree(name), l.largestOf(parent)))
}

// subtree is the quota of a cohort and of what its members lend.
func (l limits) subtree(name kueue.CohortReference) int64 {
	own, _ := l.ofCohort(name)
	sum := own.nominal
	for i := range l.quotas.queues {
		if spec := &l.quotas.queues[i].Spec; spec.CohortName == name {
			member := l.of(spec.ResourceGroups)
			sum += member.nominal - member.kept(member.nominal)
		}
	}
	for i := range l.quotas.cohorts {
		if child := &l.quotas.cohorts[i]; child.Spec.ParentName == name {
			total := l.subtree(kueue.CohortReference(child.Name))
			sum += total - l.of(child.Spec.ResourceGroups).kept(total)
		}
	}
	return sum
}

// ofCohort returns the quota and the parent of a cohort. One that only queues name has neither.
func (l limits) ofCohort(name kueue.CohortReference) (own limit, parent kueue.CohortReference) {
	for i := range l.quotas.cohorts {
		if c := &l.quotas.cohorts[i]; c.Name == string(name) {
			return l.of(c.Spec.ResourceGroups), c.Spec.ParentName
		}
	}
	return limit{}, ""
}
