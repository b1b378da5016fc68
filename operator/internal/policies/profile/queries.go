package profile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// maxRange limits the range of the queries: a longer run is measured by its last part.
const maxRange = 30 * 24 * time.Hour

// Variables of the queries. Each stands for a whole label value.
var Variables = []string{"cluster", "namespace", "owner_kind", "owner_name"}

const ownerSelector = `{$cluster_label="$cluster", namespace="$namespace", owner_kind="$owner_kind", owner_name="$owner_name"}`

// Query measures one quantity of a run, by device model.
type Query struct {
	Quantity v1alpha1.ProfileQuantity
	// Expr is a template over Variables and $cluster_label.
	Expr string
	// Model of all samples. If it is empty, the samples have the label model.
	Model string
}

// Queries returns the queries about a run of the given duration, which are evaluated at its
// end. They read the recording rules owner_model:* of rules/recording-owners.yaml.
func Queries(duration time.Duration) []Query {
	over := func(aggregation, function, rule string) string {
		return fmt.Sprintf("%s by ($cluster_label, model) (%s(%s%s[%ds]))", aggregation, function, rule, ownerSelector, rangeSeconds(duration))
	}
	return []Query{
		{Quantity: v1alpha1.QuantityMemoryPeak, Expr: over("max", "max_over_time", "owner_model:plimsoll_memory_used_bytes:max")},
		{Quantity: v1alpha1.QuantityUtilization, Expr: over("max", "avg_over_time", "owner_model:plimsoll_utilization:avg")},
		{Quantity: v1alpha1.QuantityTensorActive, Expr: over("max", "avg_over_time", "owner_model:plimsoll_tensor_active:avg")},
		{Quantity: v1alpha1.QuantityDRAMActive, Expr: over("max", "avg_over_time", "owner_model:plimsoll_dram_active:avg")},
		{Quantity: v1alpha1.QuantityNVLink, Expr: over("max", "avg_over_time", "owner_model:plimsoll_nvlink_bytes:rate5m")},
		{Quantity: v1alpha1.QuantityPCIe, Expr: over("max", "avg_over_time", "owner_model:plimsoll_pcie_bytes:rate5m")},
		{Quantity: v1alpha1.QuantityEnergy, Expr: energyExpr(rangeSeconds(duration))},
	}
}

// energySteps is the number of steps over which the power of a run is added up.
const energySteps = 200

// energyExpr returns the energy of a run: the sum over steps in time of the power at each. A job
// without devices, such as one that waits for its images, has no power, so the mean power times
// the duration would be too much.
func energyExpr(seconds int64) string {
	step := max(seconds/energySteps, 1)
	return fmt.Sprintf("max by ($cluster_label, model) (sum_over_time(owner_model:plimsoll_power_watts:sum%s[%ds:%ds])) * %d", ownerSelector, seconds, step, step)
}

// PartQueries returns the queries about a part of a run. They are those of Queries without energy, which
// adds up over the whole run.
func PartQueries(duration time.Duration) []Query {
	return slices.DeleteFunc(Queries(duration), func(q Query) bool { return q.Quantity == v1alpha1.QuantityEnergy })
}

// TrialQueries returns the queries about a copy that ran on a model for the given duration. It is
// measured as a part of a run. throughput is the query of the TrialPolicy; empty = none.
func TrialQueries(duration time.Duration, throughput, model string) []Query {
	list := PartQueries(duration)
	if throughput != "" {
		list = append(list, Query{Quantity: v1alpha1.QuantityThroughput, Expr: throughput, Model: model})
	}
	return list
}

// rangeSeconds returns the range of the queries, at least one second.
func rangeSeconds(duration time.Duration) int64 {
	return int64(max(min(duration, maxRange), time.Second).Seconds())
}

// NewRun returns the run with a duration and the results of the queries by quantity and
// model. A model without a name is left out.
func NewRun(uid string, end time.Time, duration time.Duration, results map[v1alpha1.ProfileQuantity]map[string]float64) Run {
	run := Run{UID: uid, End: end, Models: measurementsOf(results)}
	for _, measured := range run.Models {
		measured[v1alpha1.QuantityDuration] = duration.Seconds()
	}
	return run
}

// NewPart returns a run of which only a part was measured. Its duration is not known.
func NewPart(uid string, end time.Time, results map[v1alpha1.ProfileQuantity]map[string]float64) Run {
	return Run{UID: uid, End: end, Models: measurementsOf(results)}
}

// NewTrial returns the trial run of a copy with the results of the queries.
func NewTrial(uid string, end time.Time, results map[v1alpha1.ProfileQuantity]map[string]float64) Run {
	return Run{UID: uid, End: end, Trial: true, Models: measurementsOf(results)}
}

// measurementsOf returns the results by model. A model without a name is left out.
func measurementsOf(results map[v1alpha1.ProfileQuantity]map[string]float64) map[string]Measurement {
	models := map[string]Measurement{}
	for quantity, byModel := range results {
		for model, value := range byModel {
			if strings.TrimSpace(model) == "" {
				continue
			}
			if models[model] == nil {
				models[model] = Measurement{}
			}
			models[model][quantity] = value
		}
	}
	return models
}
