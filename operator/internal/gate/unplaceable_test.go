package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
)

func TestUnplaceable(t *testing.T) {
	hour := int32(3600)
	yield := v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 300}
	giveUp := v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &hour}
	since := func(d time.Duration) dispatch.Record { return dispatch.Record{UnplacedSince: t0.Add(-d)} }
	for _, tc := range []struct {
		name     string
		rule     v1alpha1.WhenUnplaceable
		reason   string
		dispatch dispatch.Record
		held     time.Duration
		want     State
	}{
		{"waits by default", v1alpha1.WhenUnplaceable{}, ReasonNoRoom, since(time.Hour), time.Hour, Pending},
		{"yields to others", yield, ReasonNoRoom, dispatch.Record{}, 5 * time.Minute, Retry},
		{"not before its time", yield, ReasonNoRoom, dispatch.Record{}, 4 * time.Minute, Pending},
		{"not because a source is down", yield, ReasonNoMetrics, dispatch.Record{}, time.Hour, Pending},
		{"not because a copy may be left out of reach", yield, ReasonOrphanedCopy, dispatch.Record{}, time.Hour, Pending},
		{"the pause grows", yield, ReasonNoRoom, dispatch.Record{Yields: 2, LastYield: t0.Add(-9 * time.Minute)}, time.Hour, Pending},
		{"and ends", yield, ReasonNoRoom, dispatch.Record{Yields: 2, LastYield: t0.Add(-10 * time.Minute)}, time.Hour, Retry},
		{"gives up only if asked", giveUp, ReasonNoRoom, since(time.Hour), 2 * time.Hour, Rejected},
		{"not before its time", giveUp, ReasonNoRoom, since(59 * time.Minute), 2 * time.Hour, Pending},
		{"not for the time without quota", giveUp, ReasonNoRoom, since(2 * time.Hour), 59 * time.Minute, Pending},
		{"yields count as one wait", giveUp, ReasonNoRoom,
			since(4*time.Hour).Yielded(t0.Add(-3*time.Hour), t0.Add(-3*time.Hour).Add(50*time.Minute)).CountUnplaced(true, t0, t0.Add(-10*time.Minute)), 10 * time.Minute, Rejected},
		{"without the time between them", giveUp, ReasonNoRoom,
			since(4*time.Hour).Yielded(t0.Add(-3*time.Hour), t0.Add(-3*time.Hour).Add(50*time.Minute)).CountUnplaced(true, t0, t0.Add(-9*time.Minute)), 9 * time.Minute, Pending},
		{"the clock stands still while it is stopped", giveUp, ReasonNoRoom,
			since(3*time.Hour).CountUnplaced(false, t0, t0.Add(-2*time.Hour-30*time.Minute)).CountUnplaced(true, t0, t0.Add(-29*time.Minute)), 3 * time.Hour, Pending},
		{"a place ends it", giveUp, ReasonNoRoom, since(2*time.Hour).CountUnplaced(false, t0, t0).Begin(nil, "", t0), 2 * time.Hour, Pending},
		{"never because the gate itself is at fault", giveUp, ReasonGateNotReady, since(2 * time.Hour), 2 * time.Hour, Pending},
	} {
		d := Unplaceable(Decision{State: Pending, Reason: tc.reason, NoRoomAnywhere: true}, tc.rule, tc.dispatch, t0.Add(-tc.held), t0)
		if d.State != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, d.State, tc.want)
		}
	}
	if dispatch.YieldPause(1) != 5*time.Minute || dispatch.YieldPause(9) != 30*time.Minute {
		t.Errorf("pauses go from 5 to 30 minutes: %s, %s", dispatch.YieldPause(1), dispatch.YieldPause(9))
	}
}

// A rejected workload cannot be brought back: only measured lack of room may do that.
func TestGivesUpOnlyForRoom(t *testing.T) {
	hour, minimum := int32(3600), int32(0)
	scores := rules()
	scores.Policies = prefer(&minimum)
	nowhere := cluster("c1", 0, 4, 4, 64)
	change := func(change func(*Candidate)) Candidate {
		c := scored(cluster("c2", 3, 24, 8, 64), 50)
		change(&c)
		return c
	}
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		fleet      Fleet
		rules      Rules
		want       State
		reason     string
	}{
		{name: "no room", candidates: []Candidate{nowhere}, rules: rules(), want: Rejected, reason: ReasonGaveUp},
		{name: "no such devices, no quota", candidates: []Candidate{nowhere, {Name: "c2", SampledAt: t0, Shapes: make([]ShapeMetrics, 1)}, noQuota(cluster("c3", 1, 8, 8, 64))},
			rules: rules(), want: Rejected, reason: ReasonGaveUp},
		{name: "no room when the source was asked last", candidates: []Candidate{nowhere}, fleet: Fleet{Problem: "timeout"}, rules: rules(), reason: ReasonNoRoom},
		{name: "no room as far as a partial answer tells", candidates: []Candidate{nowhere}, fleet: Fleet{Incomplete: true}, rules: rules(), reason: ReasonNoRoom},
		{name: "source down, required score expired", fleet: Fleet{Problem: "timeout"}, rules: scores, reason: ReasonNoMetrics,
			candidates: []Candidate{change(func(c *Candidate) { c.Scores, c.SampledAt = nil, t0.Add(-time.Hour) })}},
		{name: "source down, score at its worst", fleet: Fleet{Problem: "timeout"}, rules: scores, reason: ReasonNoMetrics,
			candidates: []Candidate{change(func(c *Candidate) { c.Scores["fleet/total"] = Score{Value: -100} })}},
		{name: "source down, condition unanswered", fleet: Fleet{Problem: "timeout"}, rules: rules(), reason: ReasonNoMetrics,
			candidates: []Candidate{change(func(c *Candidate) { c.Conditions = []ConditionResult{{Name: "power"}} })}},
		{name: "fleet condition not met", candidates: []Candidate{nowhere}, fleet: fleetSays(says("freeze", 0)), rules: rules(), reason: ReasonFleetConditionUnmet},
		{name: "fleet condition unanswered", candidates: []Candidate{nowhere}, fleet: fleetSays(ConditionResult{Name: "freeze"}), rules: rules(), reason: ReasonNoMetrics},
		{name: "not connected", candidates: []Candidate{change(func(c *Candidate) { c.Unusable = "is not connected by Kueue" })}, rules: rules(), reason: ReasonRuledOut},
		{name: "another is not connected", candidates: []Candidate{nowhere, change(func(c *Candidate) { c.Unusable = "is not connected by Kueue" })}, rules: rules(), reason: ReasonNoRoom},
		{name: "another has no score", candidates: []Candidate{scored(nowhere, 50), change(func(c *Candidate) { c.Scores = nil })}, rules: scores, reason: ReasonNoRoom},
		{name: "another is stale", candidates: []Candidate{nowhere, change(func(c *Candidate) { c.SampledAt = t0.Add(-time.Hour) })}, rules: rules(), reason: ReasonNoRoom},
		{name: "another is unknown", candidates: []Candidate{nowhere, change(func(c *Candidate) { c.SampledAt = time.Time{} })}, rules: rules(), reason: ReasonNoRoom},
		{name: "nothing decided", rules: rules(), reason: ReasonNoDecisions},
	} {
		if tc.want == "" {
			tc.want = Pending
		}
		d := Decide(job("a", 8, 1), tc.candidates, tc.fleet, ledger.View{}, tc.rules, 1, t0)
		d = Unplaceable(d, v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &hour}, dispatch.Record{UnplacedSince: t0.Add(-2 * time.Hour)}, t0.Add(-2*time.Hour), t0)
		if d.State != tc.want || d.Reason != tc.reason {
			t.Errorf("%s: got %s %s (%s), want %s %s", tc.name, d.State, d.Reason, d.Message, tc.want, tc.reason)
		}
	}
}

// A freeze keeps a workload from what others may have; that nobody answers keeps all
// of them waiting, and deactivating one after another helps none.
func TestYieldsNotForWhatNobodyAnswers(t *testing.T) {
	can := cluster("c1", 3, 24, 8, 64)
	without := can
	without.Conditions = []ConditionResult{{Name: "power"}}
	refuses := can
	refuses.Conditions = []ConditionResult{says("power", 0)}
	for _, tc := range []struct {
		name      string
		candidate Candidate
		fleet     Fleet
		want      State
	}{
		{"fleet condition not met", can, fleetSays(says("freeze", 0)), Retry},
		{"fleet condition not answered", can, fleetSays(ConditionResult{Name: "freeze"}), Pending},
		{"cluster condition not met", refuses, Fleet{}, Retry},
		{"cluster condition not answered", without, Fleet{}, Pending},
	} {
		d := Decide(job("a", 8, 1), []Candidate{tc.candidate}, tc.fleet, ledger.View{}, rules(), 1, t0)
		d = Unplaceable(d, v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}, dispatch.Record{}, t0.Add(-time.Hour), t0)
		if d.State != tc.want {
			t.Errorf("%s: got %s %s, want %s", tc.name, d.State, d.Message, tc.want)
		}
	}
}
