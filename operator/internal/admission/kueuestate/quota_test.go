package kueuestate

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// quotaOf returns resource groups with a quota of GPUs. A negative limit is none.
func quotaOf(nominal, borrowing, lending int64) []kueue.ResourceGroup {
	q := kueue.ResourceQuota{Name: "nvidia.com/gpu", NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)}
	if borrowing >= 0 {
		q.BorrowingLimit = resource.NewQuantity(borrowing, resource.DecimalSI)
	}
	if lending >= 0 {
		q.LendingLimit = resource.NewQuantity(lending, resource.DecimalSI)
	}
	cpu := kueue.ResourceQuota{Name: "cpu", NominalQuota: resource.MustParse("1000")}
	return []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{
		{Name: "a100", Resources: []kueue.ResourceQuota{cpu, q}}, {Name: "h100", Resources: []kueue.ResourceQuota{cpu, q}}}}}
}

func queueIn(name, cohort string, groups []kueue.ResourceGroup) kueue.ClusterQueue {
	return kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort), ResourceGroups: groups}}
}

func cohortIn(name, parent string, groups []kueue.ResourceGroup) kueue.Cohort {
	return kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent), ResourceGroups: groups}}
}

func TestLargestQuota(t *testing.T) {
	for _, tc := range []struct {
		name    string
		queues  []kueue.ClusterQueue // the first is asked for
		cohorts []kueue.Cohort
		want    int64
	}{
		{"no cohort", []kueue.ClusterQueue{queueIn("a", "", quotaOf(8, -1, -1)), queueIn("b", "x", quotaOf(4, -1, -1))}, nil, 8},
		{"what others of the cohort have", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(8, -1, -1)), queueIn("b", "x", quotaOf(4, -1, -1)), queueIn("c", "y", quotaOf(2, -1, -1))}, nil, 12},
		{"borrowing limit", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(8, 1, -1)), queueIn("b", "x", quotaOf(4, -1, -1))}, nil, 9},
		{"borrowing limit above what there is", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(8, 9, -1)), queueIn("b", "x", quotaOf(4, -1, -1))}, nil, 12},
		{"another queue lends less than it has", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(8, -1, -1)), queueIn("b", "x", quotaOf(4, -1, 1))}, nil, 9},
		{"what the queue does not lend is its own", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(8, -1, 2)), queueIn("b", "x", quotaOf(4, -1, -1))}, nil, 12},
		{"quota of the cohort", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(0, -1, -1))}, []kueue.Cohort{cohortIn("x", "", quotaOf(16, -1, -1))}, 16},
		{"quota of the parent and its other child", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(1, -1, -1)), queueIn("b", "y", quotaOf(4, -1, -1))},
			[]kueue.Cohort{cohortIn("x", "root", quotaOf(2, -1, -1)), cohortIn("y", "root", quotaOf(8, -1, 10)), cohortIn("root", "", quotaOf(16, -1, -1))}, 1 + 2 + 10 + 16},
		{"a cohort that borrows less", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(1, -1, -1))},
			[]kueue.Cohort{cohortIn("x", "root", quotaOf(2, 5, -1)), cohortIn("root", "", quotaOf(16, -1, -1))}, 1 + 2 + 5},
		{"a cycle, for which Kueue admits nothing", []kueue.ClusterQueue{queueIn("a", "x", quotaOf(1, -1, -1))}, []kueue.Cohort{cohortIn("x", "y", nil), cohortIn("y", "x", nil)}, 0},
		{"no quota in the flavor", []kueue.ClusterQueue{queueIn("a", "", nil)}, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			quotas := QuotasOf(&kueue.ClusterQueueList{Items: tc.queues}, &kueue.CohortList{Items: tc.cohorts})
			if got := quotas.Largest(&tc.queues[0], "h100", "nvidia.com/gpu"); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
