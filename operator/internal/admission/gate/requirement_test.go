package gate

import (
	"math"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestDecideFleetRequirements(t *testing.T) {
	candidates := []Candidate{cluster("cluster1", 4, 32, 8, 64)}
	old := []Candidate{sampledBefore(cluster("cluster1", 4, 32, 8, 64), 400)}
	runDecideCases(t, []decideCase{
		{name: "not met", candidates: candidates, fleet: fleetWith(evaluated("freeze", 0)),
			state: Pending, reason: ReasonFleetRequirementUnmet, message: "fleet requirement freeze is not met"},
		{name: "several are not met", candidates: candidates, fleet: fleetWith(evaluated("freeze", 0), evaluated("budget", 0)),
			state: Pending, reason: ReasonFleetRequirementUnmet, message: "fleet requirements freeze, budget are not met"},
		{name: "empty result, open and without metrics", candidates: old, fleet: fleetWith(evaluated("freeze", math.NaN())), rules: openRules(),
			state: Pending, reason: ReasonFleetRequirementUnmet, message: "fleet requirement freeze is not met"},
		{name: "the last result counts for maxSampleAge", candidates: candidates, fleet: fleetWith(evaluatedAt("freeze", 1, before(120))),
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "no result", candidates: candidates,
			fleet: fleetWith(evaluatedAt("freeze", 1, before(121)), RequirementResult{Name: "budget"}, evaluated("power", 1)),
			state: Pending, reason: ReasonNoMetrics, message: "fleet requirements freeze, budget have no result"},
		{name: "no result for less than unknownAfter, open", candidates: candidates, rules: openRules(),
			fleet: fleetWith(evaluatedAt("freeze", 0, before(121))),
			state: Pending, reason: ReasonNoMetrics, message: "fleet requirement freeze has no result"},
		{name: "no result for longer than unknownAfter, open", candidates: candidates, rules: openRules(),
			fleet: fleetWith(evaluatedAt("freeze", 0, before(301))), state: Ready, reason: ReasonPlaceable, order: []string{"cluster1"},
			message: "cluster1 has room for 4 such pods; requirement freeze has no result and onStale is Open"},
		{name: "an unmet requirement counts before a failing one", candidates: candidates,
			fleet: fleetWith(evaluated("freeze", 0), RequirementResult{Name: "budget"}),
			state: Pending, reason: ReasonFleetRequirementUnmet, message: "fleet requirement freeze is not met"},
		{name: "the last result counts for maxSampleAge, not met", candidates: candidates, fleet: fleetWith(evaluatedAt("freeze", 0, before(120))),
			state: Pending, reason: ReasonFleetRequirementUnmet, message: "fleet requirement freeze is not met"},
		{name: "no result for unknownAfter, open", candidates: candidates, rules: openRules(),
			fleet: fleetWith(evaluatedAt("freeze", 0, before(300))),
			state: Pending, reason: ReasonNoMetrics, message: "fleet requirement freeze has no result"},
		{name: "partial result, open", candidates: candidates, rules: openRules(), fleet: fleetWith(partial("freeze", 0)),
			state: Pending, reason: ReasonNoMetrics, message: "fleet requirement freeze has no result"},
		{name: "partial result for unknownAfter, open", candidates: candidates, rules: openRules(), fleet: fleetWith(partial("freeze", 300)),
			state: Pending, reason: ReasonNoMetrics, message: "fleet requirement freeze has no result"},
		{name: "partial result for longer than unknownAfter, open", candidates: candidates, rules: openRules(),
			fleet: fleetWith(partial("freeze", 301)), state: Ready, reason: ReasonPlaceable, order: []string{"cluster1"},
			message: "cluster1 has room for 4 such pods; requirement freeze has no result and onStale is Open"},
	})
}

func TestDecideClusterRequirements(t *testing.T) {
	const chosen = "cluster1 is chosen without metrics: no cluster has usable metrics and onStale is Open"
	noDevices := shape.Facts{UID: "a"}
	measured := func(c RequirementResult) []Candidate {
		return []Candidate{withRequirements(cluster("cluster1", 4, 32, 8, 64), c)}
	}
	unknown := func(c RequirementResult) []Candidate {
		return []Candidate{{Name: "cluster1", Shapes: make([]ShapeMetrics, 1), Requirements: []RequirementResult{c}}}
	}
	failing := Fleet{Problem: "requirements/power: too heavy"}
	failingRecently := Fleet{Problem: "requirements/power: too heavy", FailingSince: before(300)}
	runDecideCases(t, []decideCase{
		{name: "not met", candidates: measured(evaluated("power", 0)),
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not meet requirement power"},
		{name: "empty result", candidates: measured(evaluated("power", math.NaN())),
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 has no series for requirement power"},
		{name: "empty result that meets the requirement", candidates: measured(absentMeets(evaluated("power", math.NaN()))),
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "0 where an empty result meets the requirement", candidates: measured(absentMeets(evaluated("power", 0))),
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not meet requirement power"},
		{name: "partial result where an empty one meets the requirement", candidates: measured(absentMeets(partial("power", 0))),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for requirement power"},
		{name: "old empty result that met the requirement", candidates: measured(absentMeets(evaluatedAt("power", math.NaN(), before(121)))),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for requirement power"},
		{name: "no result", candidates: measured(evaluatedAt("power", 1, before(121))), fleet: failing,
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for requirement power; requirements/power: too heavy"},
		{name: "no result, workload without devices", facts: noDevices, candidates: measured(evaluatedAt("power", 1, before(121))),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for requirement power"},
		{name: "no result for longer than unknownAfter, open", facts: noDevices, candidates: measured(evaluatedAt("power", 0, before(301))), rules: openRules(),
			state: Ready, reason: ReasonPlaceable, order: []string{"cluster1"},
			message: "cluster1 is eligible: the workload requests no devices; requirement power has no result and onStale is Open"},
		{name: "no result, but the query fails for less than unknownAfter, open", facts: noDevices, rules: openRules(),
			candidates: measured(evaluatedAt("power", 0, before(301))), fleet: failingRecently,
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for requirement power; requirements/power: too heavy"},
		{name: "empty result of an unknown cluster, open", candidates: unknown(evaluated("power", math.NaN())), rules: openRules(),
			state: Ready, reason: ReasonPlaceable, message: chosen, order: []string{"cluster1"}},
		{name: "partial result without an unknown cluster, open", candidates: unknown(partial("power", 0)), rules: openRules(),
			state: Ready, reason: ReasonPlaceable, message: chosen, order: []string{"cluster1"}},
		{name: "partial result without an unknown cluster, closed", candidates: unknown(partial("power", 0)),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for requirement power"},
		{name: "no result of an unknown cluster for less than unknownAfter, open", candidates: unknown(evaluatedAt("power", 1, before(121))), rules: openRules(),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 has no result for requirement power"},
		{name: "not met by an unknown cluster, open", candidates: unknown(evaluated("power", 0)), rules: openRules(),
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not meet requirement power"},
	})
}

// A requirement about a profile does not apply to a job without one, and the message says so.
func TestDecideWithoutAProfile(t *testing.T) {
	cluster1 := cluster("cluster1", 4, 32, 8, 64)
	runDecideCases(t, []decideCase{
		{name: "one requirement", candidates: []Candidate{cluster1}, fleet: Fleet{SkippedRequirements: []string{"memory"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods; requirement memory does not apply: the job has no profile for it yet", order: []string{"cluster1"}},
		{name: "several requirements", candidates: []Candidate{cluster1}, fleet: Fleet{SkippedRequirements: []string{"memory", "window"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods; requirements memory, window do not apply: the job has no profile for them yet", order: []string{"cluster1"}},
	})
}
