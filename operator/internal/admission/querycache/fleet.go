package querycache

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// explanatory are queries that decide no placement.
var explanatory = []string{gate.QueryLargest, gate.QueryEmptyFit, gate.QueryLargestNode, gate.QueryQuotaLimit, gate.QueryDeviceFit, gate.QueryRequestFit, gate.QueryMeasured, gate.QueryExcess}

// fleetOf returns the state of all clusters together from the results of a plan. Explanatory queries decide nothing, unknown prerequisites exclude no
// cluster, and an unknown time of the quota makes none free, so failures of these queries do not count.
func fleetOf(results []queryResult) gate.Fleet {
	var fleet gate.Fleet
	for _, q := range results {
		if slices.Contains(explanatory, q.Name) || q.Name == gate.QueryQuotaTime || q.Prerequisite != "" {
			continue
		}
		if q.result.err != nil && fleet.Problem == "" {
			fleet.Problem = fmt.Sprintf("%s: %v", q.Name, q.result.err)
		}
		if q.decidesAdmission() && q.result.failingSince.After(fleet.FailingSince) {
			fleet.FailingSince = q.result.failingSince
		}
		if q.result.mayLackClusters() || q.Name == gate.QueryFit && q.result.hasInvalidValue() {
			fleet.Incomplete = true
		}
		if q.isFleetScoped() {
			fleet.Requirements = append(fleet.Requirements, q.result.fleetRequirement(q.Requirement))
		}
	}
	return fleet
}

// fleetRequirement returns a requirement of scope Fleet. The requirement is met if the value of
// any series is not 0. If no series meets the requirement and the response is incomplete, the
// result is partial: a missing store might hold such a series. If a series meets it, but
// nothing says which clusters the response lacks, the result is partial as well: the value may
// be that of a part of the data. Without a value, EvaluatedAt is the time since when responses
// are incomplete.
func (r *cachedResult) fleetRequirement(of *v1alpha1.GateRequirement) gate.RequirementResult {
	met := 0.0
	if r.hasNonZeroValue() {
		met = 1
	}
	hasSeries := len(r.values)+len(r.unmappedValues) > 0
	c := r.requirement(of, gate.Number{Value: met, Known: hasSeries})
	isWhole := r.failedClusters != nil || r.lacksWholeClusters && r.hasNonZeroCluster()
	c.Partial = r.incomplete && (met == 0 || !isWhole)
	if c.Partial && (met != 0 || !hasSeries) {
		c.Number = gate.Number{}
		c.EvaluatedAt = slices.MaxFunc(slices.Collect(maps.Values(r.incompleteSince)), time.Time.Compare)
	}
	return c
}
