package metrics

import (
	"math"
	"slices"
)

// amount is a quota in the unit in which Kueue exports it.
func (q *Queue) amount(n int64) float64 {
	if q.Resource == "cpu" {
		return float64(n) / 1000
	}
	return float64(n)
}

// exportKueue exports what Kueue exports.
func exportKueue(e *export, snap *Snapshot) {
	for _, q := range snap.Queues {
		e.add("kueue_cluster_queue_nominal_quota", q.amount(q.Nominal), "cohort", q.Cohort, "cluster_queue", q.Name, "flavor", q.Flavor, "resource", q.Resource, "replica_role", role)
		e.add("kueue_cluster_queue_borrowing_limit", borrowingLimit(&q), "cohort", q.Cohort, "cluster_queue", q.Name, "flavor", q.Flavor, "resource", q.Resource, "replica_role", role)
		lending := 0.0
		if q.Cohort != "" {
			lending = math.Inf(1)
		}
		e.add("kueue_cluster_queue_lending_limit", lending, "cohort", q.Cohort, "cluster_queue", q.Name, "flavor", q.Flavor, "resource", q.Resource, "replica_role", role)
		e.add("kueue_cluster_queue_resource_reservation", q.amount(q.Reserved), "cohort", q.Cohort, "cluster_queue", q.Name, "flavor", q.Flavor, "resource", q.Resource, "replica_role", role)
	}
	for _, c := range cohortTotals(snap) {
		// Kueue removes these series at zero.
		if c.quota > 0 {
			e.add("kueue_cohort_subtree_quota", c.quota, "cohort", c.name, "flavor", c.flavor, "resource", c.resource, "replica_role", role)
		}
		if c.reserved > 0 {
			e.add("kueue_cohort_subtree_resource_reservations", c.reserved, "cohort", c.name, "flavor", c.flavor, "resource", c.resource, "replica_role", role)
		}
	}
	parents := cohortParents(snap)
	for _, name := range cohortNames(snap) {
		e.add("kueue_cohort_info", 1, "cohort", name, "parent_cohort", parents[name], "root_cohort", rootOf(name, parents), "replica_role", role)
	}
	for _, o := range snap.Objects {
		if o.Kind == KindLocalQueue {
			for _, status := range []string{"True", "False", "Unknown"} {
				e.add("kueue_local_queue_status", number(status == "True"), "name", o.Name, "namespace", o.Namespace, "active", status, "replica_role", role)
			}
		}
	}
}

func borrowingLimit(q *Queue) float64 {
	if q.BorrowingLimit == 0 {
		return math.Inf(1)
	}
	return float64(max(0, q.BorrowingLimit))
}

// cohortTotal is the quota of a cohort with all below, and their reservations.
type cohortTotal struct {
	name, flavor, resource string
	quota, reserved        float64
}

// cohortTotals returns the totals of all cohorts, in the order of the snapshot.
func cohortTotals(snap *Snapshot) []cohortTotal {
	var totals []cohortTotal
	parents := cohortParents(snap)
	add := func(cohort, flavor, resource string, quota, reserved int64) {
		if flavor == "" {
			return
		}
		for ; cohort != ""; cohort = parents[cohort] {
			i := slices.IndexFunc(totals, func(c cohortTotal) bool {
				return c.name == cohort && c.flavor == flavor && c.resource == resource
			})
			if i < 0 {
				i = len(totals)
				totals = append(totals, cohortTotal{name: cohort, flavor: flavor, resource: resource})
			}
			totals[i].quota += float64(quota)
			totals[i].reserved += float64(reserved)
		}
	}
	for _, q := range snap.Queues {
		add(q.Cohort, q.Flavor, q.Resource, q.Nominal, q.Reserved)
	}
	for _, c := range snap.Cohorts {
		add(c.Name, c.Flavor, c.Resource, c.Nominal, 0)
	}
	return totals
}

// cohortParents returns the parent of each cohort that has one.
func cohortParents(snap *Snapshot) map[string]string {
	parents := map[string]string{}
	for _, c := range snap.Cohorts {
		if c.Parent != "" {
			parents[c.Name] = c.Parent
		}
	}
	return parents
}

// cohortNames returns the cohorts that Kueue knows, in the order of the snapshot.
func cohortNames(snap *Snapshot) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, q := range snap.Queues {
		add(q.Cohort)
	}
	for _, c := range snap.Cohorts {
		add(c.Name)
		add(c.Parent)
	}
	return names
}

func rootOf(cohort string, parents map[string]string) string {
	for parents[cohort] != "" {
		cohort = parents[cohort]
	}
	return cohort
}
