package gate

import (
	"math"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestDecideFleetConditions(t *testing.T) {
	candidates := []Candidate{cluster("cluster1", 4, 32, 8, 64)}
	old := []Candidate{sampledBefore(cluster("cluster1", 4, 32, 8, 64), 400)}
	runDecideCases(t, []decideCase{
		{name: "not met", candidates: candidates, fleet: fleetWith(evaluated("freeze", 0)),
			state: Pending, reason: ReasonFleetConditionUnmet, message: "fleet condition freeze is not met"},
		{name: "several are not met", candidates: candidates, fleet: fleetWith(evaluated("freeze", 0), evaluated("budget", 0)),
			state: Pending, reason: ReasonFleetConditionUnmet, message: "fleet conditions freeze, budget are not met"},
		{name: "empty result, open and without metrics", candidates: old, fleet: fleetWith(evaluated("freeze", math.NaN())), rules: openRules(),
			state: Pending, reason: ReasonFleetConditionUnmet, message: "fleet condition freeze is not met"},
		{name: "the last result counts for maxSampleAge", candidates: candidates, fleet: fleetWith(evaluatedAt("freeze", 1, before(120))),
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "no result", candidates: candidates,
			fleet: fleetWith(evaluatedAt("freeze", 1, before(121)), ConditionResult{Name: "budget"}, evaluated("power", 1)),
			state: Pending, reason: ReasonNoMetrics, message: "fleet conditions freeze, budget have no result"},
		{name: "no result for less than unknownAfter, open", candidates: candidates, rules: openRules(),
			fleet: fleetWith(evaluatedAt("freeze", 0, before(121))),
			state: Pending, reason: ReasonNoMetrics, message: "fleet condition freeze has no result"},
		{name: "no result for longer than unknownAfter, open", candidates: candidates, rules: openRules(),
			fleet: fleetWith(evaluatedAt("freeze", 0, before(301))), state: Ready, reason: ReasonPlaceable, order: []string{"cluster1"},
			message: "cluster1 has room for 4 such pods; condition freeze has no result and onStale is Open"},
		{name: "an unmet condition counts before a failing one", candidates: candidates,
			fleet: fleetWith(evaluated("freeze", 0), ConditionResult{Name: "budget"}),
			state: Pending, reason: ReasonFleetConditionUnmet, message: "fleet condition freeze is not met"},
		{name: "the last result counts for maxSampleAge, not met", candidates: candidates, fleet: fleetWith(evaluatedAt("freeze", 0, before(120))),
			state: Pending, reason: ReasonFleetConditionUnmet, message: "fleet condition freeze is not met"},
		{name: "no result for unknownAfter, open", candidates: candidates, rules: openRules(),
			fleet: fleetWith(evaluatedAt("freeze", 0, before(300))),
			state: Pending, reason: ReasonNoMetrics, message: "fleet condition freeze has no result"},
		{name: "partial result, open", candidates: candidates, rules: openRules(), fleet: fleetWith(partial("freeze", 0)),
			state: Pending, reason: ReasonNoMetrics, message: "fleet condition freeze has no result"},
		{name: "partial result for unknownAfter, open", candidates: candidates, rules: openRules(), fleet: fleetWith(partial("freeze", 300)),
			state: Pending, reason: ReasonNoMetrics, message: "fleet condition freeze has no result"},
		{name: "partial result for longer than unknownAfter, open", candidates: candidates, rules: openRules(),
			fleet: fleetWith(partial("freeze", 301)), state: Ready, reason: ReasonPlaceable, order: []string{"cluster1"},
			message: "cluster1 has room for 4 such pods; condition freeze has no result and onStale is Open"},
	})
}

func TestDecideClusterConditions(t *testing.T) {
	const chosen = "cluster1 is chosen without metrics: no cluster has usable metrics and onStale is Open"
	noDevices := shape.Facts{UID: "a"}
	measured := func(c ConditionResult) []Candidate {
		return []Candidate{withConditions(cluster("cluster1", 4, 32, 8, 64), c)}
	}
	unknown := func(c ConditionResult) []Candidate {
		return []Candidate{{Name: "cluster1", Shapes: make([]ShapeMetrics, 1), Conditions: []ConditionResult{c}}}
	}
	failing := Fleet{Problem: "conditions/power: too heavy"}
	failingRecently := Fleet{Problem: "conditions/power: too heavy", FailingSince: before(300)}
	runDecideCases(t, []decideCase{
		{name: "not met", candidates: measured(evaluated("power", 0)),
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not meet condition power"},
		{name: "empty result", candidates: measured(evaluated("power", math.NaN())),
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 has no series for condition power"},
		{name: "empty result that meets the condition", candidates: measured(absentMeets(evaluated("power", math.NaN()))),
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "0 where an empty result meets the condition", candidates: measured(absentMeets(evaluated("power", 0))),
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not meet condition power"},
		{name: "partial result where an empty one meets the condition", candidates: measured(absentMeets(partial("power", 0))),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for condition power"},
		{name: "old empty result that met the condition", candidates: measured(absentMeets(evaluatedAt("power", math.NaN(), before(121)))),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for condition power"},
		{name: "no result", candidates: measured(evaluatedAt("power", 1, before(121))), fleet: failing,
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for condition power; conditions/power: too heavy"},
		{name: "no result, workload without devices", facts: noDevices, candidates: measured(evaluatedAt("power", 1, before(121))),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for condition power"},
		{name: "no result for longer than unknownAfter, open", facts: noDevices, candidates: measured(evaluatedAt("power", 0, before(301))), rules: openRules(),
			state: Ready, reason: ReasonPlaceable, order: []string{"cluster1"},
			message: "cluster1 is eligible: the workload requests no devices; condition power has no result and onStale is Open"},
		{name: "no result, but the query fails for less than unknownAfter, open", facts: noDevices, rules: openRules(),
			candidates: measured(evaluatedAt("power", 0, before(301))), fleet: failingRecently,
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for condition power; conditions/power: too heavy"},
		{name: "empty result of an unknown cluster, open", candidates: unknown(evaluated("power", math.NaN())), rules: openRules(),
			state: Ready, reason: ReasonPlaceable, message: chosen, order: []string{"cluster1"}},
		{name: "partial result without an unknown cluster, open", candidates: unknown(partial("power", 0)), rules: openRules(),
			state: Ready, reason: ReasonPlaceable, message: chosen, order: []string{"cluster1"}},
		{name: "partial result without an unknown cluster, closed", candidates: unknown(partial("power", 0)),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for condition power"},
		{name: "no result of an unknown cluster for less than unknownAfter, open", candidates: unknown(evaluatedAt("power", 1, before(121))), rules: openRules(),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for condition power"},
		{name: "not met by an unknown cluster, open", candidates: unknown(evaluated("power", 0)), rules: openRules(),
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not meet condition power"},
	})
}

// A condition about a profile does not apply to a job without one, and the message says so.
func TestDecideWithoutAProfile(t *testing.T) {
	cluster1 := cluster("cluster1", 4, 32, 8, 64)
	runDecideCases(t, []decideCase{
		{name: "one condition", candidates: []Candidate{cluster1}, fleet: Fleet{SkippedConditions: []string{"memory"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods; condition memory does not apply: the job has no profile for it yet", order: []string{"cluster1"}},
		{name: "several conditions", candidates: []Candidate{cluster1}, fleet: Fleet{SkippedConditions: []string{"memory", "window"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods; conditions memory, window do not apply: the job has no profile for them yet", order: []string{"cluster1"}},
	})
}
