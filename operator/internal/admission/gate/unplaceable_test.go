package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

func TestUnplaceable(t *testing.T) {
	hour := int32(3600)
	yield := v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 300}
	giveUp := v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &hour}
	unplacedFor := func(d time.Duration) dispatch.Record { return dispatch.Record{UnplacedSince: t0.Add(-d)} }
	// The workload yielded 3 h ago after 50 min without room, and holds quota again.
	yieldedAfter50Minutes := func(quotaSince time.Time) dispatch.Record {
		return unplacedFor(4*time.Hour).Yielded(t0.Add(-3*time.Hour), t0.Add(-3*time.Hour).Add(50*time.Minute)).CountUnplaced(true, t0, quotaSince)
	}
	for _, tc := range []struct {
		name     string
		spec     v1alpha1.WhenUnplaceable
		reason   string
		record   dispatch.Record
		quotaFor time.Duration
		want     State
	}{
		{"waits by default", v1alpha1.WhenUnplaceable{}, ReasonNoRoom, unplacedFor(time.Hour), time.Hour, Pending},
		{"yields after yieldAfterSeconds", yield, ReasonNoRoom, dispatch.Record{}, 5 * time.Minute, Retry},
		{"does not yield earlier", yield, ReasonNoRoom, dispatch.Record{}, 4 * time.Minute, Pending},
		{"does not yield while a source is down", yield, ReasonNoMetrics, dispatch.Record{}, time.Hour, Pending},
		{"does not yield because of an orphaned copy", yield, ReasonOrphanedCopy, dispatch.Record{}, time.Hour, Pending},
		{"does not yield within the pause after the second yield", yield, ReasonNoRoom, dispatch.Record{Yields: 2, LastYield: t0.Add(-9 * time.Minute)}, time.Hour, Pending},
		{"yields after the pause", yield, ReasonNoRoom, dispatch.Record{Yields: 2, LastYield: t0.Add(-10 * time.Minute)}, time.Hour, Retry},
		{"gives up after giveUpAfterSeconds", giveUp, ReasonNoRoom, unplacedFor(time.Hour), 2 * time.Hour, Rejected},
		{"does not give up earlier", giveUp, ReasonNoRoom, unplacedFor(59 * time.Minute), 2 * time.Hour, Pending},
		{"time without quota does not count", giveUp, ReasonNoRoom, unplacedFor(2 * time.Hour), 59 * time.Minute, Pending},
		{"times before and after a yield add up", giveUp, ReasonNoRoom, yieldedAfter50Minutes(t0.Add(-10 * time.Minute)), 10 * time.Minute, Rejected},
		{"the time between yield and new quota does not count", giveUp, ReasonNoRoom, yieldedAfter50Minutes(t0.Add(-9 * time.Minute)), 9 * time.Minute, Pending},
		{"time with room elsewhere does not count", giveUp, ReasonNoRoom,
			unplacedFor(3*time.Hour).CountUnplaced(false, t0, t0.Add(-2*time.Hour-30*time.Minute)).CountUnplaced(true, t0, t0.Add(-29*time.Minute)), 3 * time.Hour, Pending},
		{"a nomination resets the time", giveUp, ReasonNoRoom, unplacedFor(2*time.Hour).CountUnplaced(false, t0, t0).Begin(nil, t0, "", t0), 2 * time.Hour, Pending},
		{"does not give up while the gate is not ready", giveUp, ReasonGateNotReady, unplacedFor(2 * time.Hour), 2 * time.Hour, Pending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Unplaceable(Decision{State: Pending, Reason: tc.reason, NoRoomAnywhere: true}, tc.spec, tc.record, t0.Add(-tc.quotaFor), t0)
			if d.State != tc.want {
				t.Errorf("got %s, want %s", d.State, tc.want)
			}
		})
	}
}

func TestUnplaceableChangesNoReadyDecision(t *testing.T) {
	d := Decision{State: Ready, Reason: ReasonPlaceable, Order: []string{"cluster1"}}
	if got := Unplaceable(d, v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}, dispatch.Record{}, before(3600), t0); got.State != Ready {
		t.Errorf("got %s", got.State)
	}
}

func TestUnplaceableMessages(t *testing.T) {
	second := int32(1)
	d := Decision{State: Pending, Reason: ReasonNoRoom, NoRoomAnywhere: true, Message: "no cluster has room"}
	for _, tc := range []struct {
		name string
		spec v1alpha1.WhenUnplaceable
		want string
	}{
		{"yield", v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 1}, "returns its quota for other workloads: no cluster has room"},
		{"give up", v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &second}, "gave up: no cluster has room"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Unplaceable(d, tc.spec, dispatch.Record{UnplacedSince: before(60)}, before(60), t0); got.Message != tc.want {
				t.Errorf("got %q, want %q", got.Message, tc.want)
			}
		})
	}
}

// A rejected workload does not return to its queue. Only a measured lack of room on all
// clusters may reject a workload.
func TestGivesUpOnlyForMeasuredLackOfRoom(t *testing.T) {
	hour, minimum := int32(3600), int32(0)
	scores := scoreRules(&minimum)
	full := cluster("c1", 0, 4, 4, 64)
	room := func(change func(*Candidate)) Candidate {
		c := withScore(cluster("c2", 3, 24, 8, 64), 50)
		change(&c)
		return c
	}
	disconnected := room(func(c *Candidate) { c.Exclude(RejectDisconnected, "is not connected by Kueue") })
	failing := Fleet{Problem: "timeout"}
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		fleet      Fleet
		rules      Rules
		want       State
		reason     string
	}{
		{name: "no room", candidates: []Candidate{full}, want: Rejected, reason: ReasonGaveUp},
		{name: "no such devices, and no quota", candidates: []Candidate{full, {Name: "c2", SampledAt: t0, Shapes: make([]ShapeMetrics, 1)}, withoutQueue(cluster("c3", 1, 8, 8, 64))},
			want: Rejected, reason: ReasonGaveUp},
		{name: "no room, but the source fails now", candidates: []Candidate{full}, fleet: failing, reason: ReasonNoRoom},
		{name: "no room in a partial result", candidates: []Candidate{full}, fleet: Fleet{Incomplete: true}, reason: ReasonNoRoom},
		{name: "source down, required score expired", fleet: failing, rules: scores, reason: ReasonNoMetrics,
			candidates: []Candidate{room(func(c *Candidate) { c.Scores, c.SampledAt = nil, before(3600) })}},
		{name: "source down, lowest score", fleet: failing, rules: scores, reason: ReasonNoMetrics,
			candidates: []Candidate{room(func(c *Candidate) { c.Scores["fleet/total"] = Score{Value: -100} })}},
		{name: "source down, requirement without result", fleet: failing, reason: ReasonNoMetrics,
			candidates: []Candidate{room(func(c *Candidate) { c.Requirements = []RequirementResult{{Name: "power"}} })}},
		{name: "fleet requirement not met", candidates: []Candidate{full}, fleet: fleetWith(evaluated("freeze", 0)), reason: ReasonFleetRequirementUnmet},
		{name: "fleet requirement without result", candidates: []Candidate{full}, fleet: fleetWith(RequirementResult{Name: "freeze"}), reason: ReasonNoMetrics},
		{name: "not connected", candidates: []Candidate{disconnected}, reason: ReasonRuledOut},
		{name: "another cluster is not connected", candidates: []Candidate{full, disconnected}, reason: ReasonNoRoom},
		{name: "another cluster has no score", candidates: []Candidate{withScore(full, 50), room(func(c *Candidate) { c.Scores = nil })}, rules: scores, reason: ReasonNoRoom},
		{name: "another cluster is stale", candidates: []Candidate{full, room(func(c *Candidate) { c.SampledAt = before(3600) })}, reason: ReasonNoRoom},
		{name: "another cluster is unknown", candidates: []Candidate{full, room(func(c *Candidate) { c.SampledAt = time.Time{} })}, reason: ReasonNoRoom},
		{name: "no decisions of the Placement", reason: ReasonNoDecisions},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.want == "" {
				tc.want = Pending
			}
			if tc.rules.Placement == "" {
				tc.rules = rules()
			}
			d := Decide(job("a", 8, 1), tc.candidates, tc.fleet, ledger.View{}, tc.rules, 1, t0)
			d = Unplaceable(d, v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &hour}, dispatch.Record{UnplacedSince: before(7200)}, before(7200), t0)
			if d.State != tc.want || d.Reason != tc.reason {
				t.Errorf("got %s %s (%s), want %s %s", d.State, d.Reason, d.Message, tc.want, tc.reason)
			}
		})
	}
}

// If a rule that the query fit reads fails, the clusters with such devices lose its series. No workload that
// needs the series can start, so that a yield helps none.
func TestDoesNotYieldWithoutFitSeries(t *testing.T) {
	withoutFit, without := cluster("c1", 3, 24, 8, 64), Candidate{Name: "c2", SampledAt: t0, Shapes: make([]ShapeMetrics, 1)}
	withoutFit.Shapes[0].Fit = Number{}
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		want       State
	}{
		{"no series", []Candidate{withoutFit}, Pending},
		{"no series, and no such devices elsewhere", []Candidate{withoutFit, without}, Pending},
		{"no such devices", []Candidate{without}, Retry},
		{"no series, and another cluster is full", []Candidate{withoutFit, cluster("c3", 0, 4, 4, 64)}, Retry},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Decide(job("a", 8, 1), tc.candidates, Fleet{}, ledger.View{}, rules(), 1, t0)
			d = Unplaceable(d, v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}, dispatch.Record{}, before(3600), t0)
			if d.State != tc.want {
				t.Errorf("got %s %s %s, want %s", d.State, d.Reason, d.Message, tc.want)
			}
		})
	}
}

// An unmet requirement may concern this workload only, so that others can use its quota.
// A requirement without result keeps all workloads waiting, so that a yield helps none.
func TestYieldsOnlyForUnmetRequirements(t *testing.T) {
	room := cluster("c1", 3, 24, 8, 64)
	for _, tc := range []struct {
		name      string
		candidate Candidate
		fleet     Fleet
		want      State
	}{
		{"fleet requirement not met", room, fleetWith(evaluated("freeze", 0)), Retry},
		{"fleet requirement without result", room, fleetWith(RequirementResult{Name: "freeze"}), Pending},
		{"cluster requirement not met", withRequirements(room, evaluated("power", 0)), Fleet{}, Retry},
		{"cluster requirement without result", withRequirements(room, RequirementResult{Name: "power"}), Fleet{}, Pending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Decide(job("a", 8, 1), []Candidate{tc.candidate}, tc.fleet, ledger.View{}, rules(), 1, t0)
			d = Unplaceable(d, v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}, dispatch.Record{}, before(3600), t0)
			if d.State != tc.want {
				t.Errorf("got %s %s, want %s", d.State, d.Message, tc.want)
			}
		})
	}
}

// kube-state-metrics of cluster2, or the exporters of its nodes with such devices, are down: the devices exist,
// and how many are free is unknown.
func TestUnknownFreeDevicesAreNotMeasured(t *testing.T) {
	unknown := cluster("cluster2", 0, 0, 0, 64)
	unknown.Shapes[0].Fit, unknown.Shapes[0].Headroom, unknown.Shapes[0].Largest = Number{}, Number{}, Number{}
	candidates := []Candidate{cluster("cluster1", 0, 0, 0, 64), unknown}
	d := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, RulesOf(&v1alpha1.PlacementGateSpec{}), 1, t0)
	if d.NoRoomAnywhere || d.Verdicts[1].Rejection != RejectNoFit {
		t.Errorf("no room anywhere: %t, cluster2: %s, %q", d.NoRoomAnywhere, d.Verdicts[1].Rejection, d.Message)
	}
}
