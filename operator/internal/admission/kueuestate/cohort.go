package kueuestate

import kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

// ParentCohorts returns the parent of each cohort; empty = it has none.
func ParentCohorts(cohorts *kueue.CohortList) map[kueue.CohortReference]kueue.CohortReference {
	parents := map[kueue.CohortReference]kueue.CohortReference{}
	for i := range cohorts.Items {
		parents[kueue.CohortReference(cohorts.Items[i].Name)] = cohorts.Items[i].Spec.ParentName
	}
	return parents
}

// QuotaSource names what a ClusterQueue draws quota from: the root of its cohorts, or itself.
func QuotaSource(q *kueue.ClusterQueue, parents map[kueue.CohortReference]kueue.CohortReference) string {
	if q.Spec.CohortName == "" {
		return "queue " + q.Name
	}
	return "cohort " + string(RootCohort(q.Spec.CohortName, parents))
}

// RootCohort returns the root of the cohort's tree, in which all members may borrow quota from
// each other. In a cycle, for which Kueue admits nothing, it returns one of the members.
func RootCohort(cohort kueue.CohortReference, parents map[kueue.CohortReference]kueue.CohortReference) kueue.CohortReference {
	for range parents {
		parent := parents[cohort]
		if parent == "" {
			break
		}
		cohort = parent
	}
	return cohort
}
